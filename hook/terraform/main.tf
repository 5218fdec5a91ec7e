# The failure hook on Google Cloud: a log sink sends failed pipeline jobs to a topic, a push subscription hands them to
# a Cloud Run service, what fails again and again goes to a dead letter topic. Every account has the least it needs.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.30"
    }
  }
}

locals {
  failed = join(" OR ", [for state in var.states : "jsonPayload.state=\"${state}\""])
}

data "google_project" "this" {
  project_id = var.project
}

# --- what happened: log sink, topics ---------------------------------------------------------------------------------

resource "google_pubsub_topic" "failures" {
  project = var.project
  name    = var.name
}

resource "google_pubsub_topic" "dead" {
  project = var.project
  name    = "${var.name}-dead"
}

# Keeps what could not be handled, so that someone can look at it.
resource "google_pubsub_subscription" "dead" {
  project                    = var.project
  name                       = "${var.name}-dead"
  topic                      = google_pubsub_topic.dead.id
  message_retention_duration = "604800s"
}

# Each state is written out: field="A" OR "B" would match "B" anywhere in an entry.
resource "google_logging_project_sink" "failures" {
  project                = var.project
  name                   = var.name
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.failures.id}"
  unique_writer_identity = true
  filter                 = "resource.type=\"aiplatform.googleapis.com/PipelineJob\" AND logName:\"pipeline_job_events\" AND (${local.failed})"
}

# The sink writes as an account of its own.
resource "google_pubsub_topic_iam_member" "sink" {
  project = var.project
  topic   = google_pubsub_topic.failures.name
  role    = "roles/pubsub.publisher"
  member  = google_logging_project_sink.failures.writer_identity
}

# --- who works: service, accounts ------------------------------------------------------------------------------------

resource "google_service_account" "hook" {
  project      = var.project
  account_id   = var.name
  display_name = "Reads failed pipelines and their logs"
}

resource "google_service_account" "push" {
  project      = var.project
  account_id   = "${var.name}-push"
  display_name = "Calls the failure hook"
}

resource "google_cloud_run_v2_service" "hook" {
  project  = var.project
  location = var.region
  name     = var.name
  ingress  = "INGRESS_TRAFFIC_ALL"

  template {
    service_account                  = google_service_account.hook.email
    timeout                          = "600s"
    max_instance_request_concurrency = 4

    scaling {
      min_instance_count = 0
      max_instance_count = var.max_instances
    }

    containers {
      image = var.image
      args  = ["serve"]

      resources {
        limits = {
          cpu    = "1"
          memory = "1Gi"
        }
      }

      env {
        name  = "FAILURE_HOOK_BUCKET"
        value = google_storage_bucket.reports.name
      }
      env {
        name  = "FAILURE_HOOK_AUDIENCE"
        value = var.audience
      }
      env {
        name  = "FAILURE_HOOK_SERVICE_ACCOUNT"
        value = google_service_account.push.email
      }
      env {
        name  = "FAILURE_HOOK_COOLDOWN"
        value = tostring(var.cooldown_seconds)
      }

      dynamic "env" {
        for_each = var.webhook_secrets
        content {
          name = "FAILURE_HOOK_${upper(env.key)}_URL"
          value_source {
            secret_key_ref {
              secret  = env.value
              version = "latest"
            }
          }
        }
      }

      liveness_probe {
        http_get {
          path = "/healthz"
        }
      }
    }
  }
}

resource "google_cloud_run_v2_service_iam_member" "push" {
  project  = var.project
  location = var.region
  name     = google_cloud_run_v2_service.hook.name
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.push.email}"
}

resource "google_pubsub_subscription" "push" {
  project                    = var.project
  name                       = var.name
  topic                      = google_pubsub_topic.failures.id
  ack_deadline_seconds       = 600
  message_retention_duration = "86400s"

  push_config {
    push_endpoint = google_cloud_run_v2_service.hook.uri

    oidc_token {
      service_account_email = google_service_account.push.email
      audience              = var.audience
    }
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead.id
    max_delivery_attempts = 20
  }

  depends_on = [google_cloud_run_v2_service_iam_member.push]
}

# Pub/Sub itself moves messages to the dead letter topic, which means publishing there and acknowledging here.
resource "google_pubsub_topic_iam_member" "dead" {
  project = var.project
  topic   = google_pubsub_topic.dead.name
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

resource "google_pubsub_subscription_iam_member" "dead" {
  project      = var.project
  subscription = google_pubsub_subscription.push.name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

# --- what it may read and write ---------------------------------------------------------------------------------------

resource "google_storage_bucket" "reports" {
  project                     = var.project
  name                        = var.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  lifecycle_rule {
    condition {
      age = var.keep_days
    }
    action {
      type = "Delete"
    }
  }
}

# Reports and marks: created, read, replaced and removed, in this bucket only.
resource "google_storage_bucket_iam_member" "reports" {
  bucket = google_storage_bucket.reports.name
  role   = "roles/storage.objectUser"
  member = "serviceAccount:${google_service_account.hook.email}"
}

# Pipelines' own buckets: outputs, configurations and checkpoints are listed and read.
resource "google_storage_bucket_iam_member" "pipelines" {
  for_each = toset(var.pipeline_buckets)
  bucket   = each.value
  role     = "roles/storage.objectViewer"
  member   = "serviceAccount:${google_service_account.hook.email}"
}

# pipelineJobs.get and customJobs.get: the tasks, their states and errors.
resource "google_project_iam_member" "vertex" {
  project = var.project
  role    = "roles/aiplatform.viewer"
  member  = "serviceAccount:${google_service_account.hook.email}"
}

# logEntries.list: the tasks' logs.
resource "google_project_iam_member" "logs" {
  project = var.project
  role    = "roles/logging.viewer"
  member  = "serviceAccount:${google_service_account.hook.email}"
}

resource "google_secret_manager_secret_iam_member" "webhooks" {
  for_each  = var.webhook_secrets
  project   = var.project
  secret_id = each.value
  role      = "roles/secretmanager.secretAccessor"
  member    = "serviceAccount:${google_service_account.hook.email}"
}
