variable "project" {
  description = "Project whose pipelines are watched and in which the hook runs."
  type        = string
}

variable "region" {
  description = "Region of the Cloud Run service and the bucket."
  type        = string
  default     = "us-central1"
}

variable "image" {
  description = "Image of check-failed-run, with its Google Cloud clients."
  type        = string
}

variable "bucket" {
  description = "Name of the bucket for reports and marks; it is made."
  type        = string
}

variable "name" {
  description = "Name of the service, topic, sink and accounts."
  type        = string
  default     = "failure-hook"
}

variable "audience" {
  description = "Audience of the push subscription's token; any fixed text that both sides share."
  type        = string
  default     = "https://failure-hook"
}

variable "states" {
  description = "Final states that are reported."
  type        = list(string)
  default     = ["PIPELINE_STATE_FAILED", "PIPELINE_STATE_CANCELLED"]
}

variable "pipeline_buckets" {
  description = "Buckets of pipeline roots, data and checkpoints that the hook may read."
  type        = list(string)
  default     = []
}

variable "webhook_secrets" {
  description = "Secrets that hold webhook URLs, by target: slack, chat, webhook."
  type        = map(string)
  default     = {}
}

variable "cooldown_seconds" {
  description = "Time in which the same failure is not told again."
  type        = number
  default     = 3600
}

variable "keep_days" {
  description = "Days after which reports and marks are deleted."
  type        = number
  default     = 90
}

variable "max_instances" {
  description = "Most instances of the service."
  type        = number
  default     = 5
}
