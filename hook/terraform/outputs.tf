output "service_url" {
  description = "Address of the service."
  value       = google_cloud_run_v2_service.hook.uri
}

output "service_account" {
  description = "Account that reads jobs and logs; grant it the same roles in other projects whose pipelines it should read."
  value       = google_service_account.hook.email
}

output "topic" {
  description = "Topic of failures; sinks of other projects may send here."
  value       = google_pubsub_topic.failures.id
}

output "dead_letter_subscription" {
  description = "Where messages end that could not be handled."
  value       = google_pubsub_subscription.dead.id
}
