"""The cloud said no: IAM, quota, no capacity, disabled API, organisation policy, billing, network, credentials.

Boundary: EACCES on a local or network file system is ``io-checkpoint``; an image or artifact that does not exist is
``pipeline-orchestration``; GPU memory ("RESOURCE_EXHAUSTED: Out of memory") is ``oom``.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "cloud-permissions-quota"

GRANT = Fix(
    action="Grant the missing permission[[ {permission}]][[ to {principal}]][[ on {resource}]] through the smallest role that holds it",
    change=Change.PERMISSION,
    impact="the refused call is allowed; takes up to a few minutes to act",
    validate="the same call made once as that account succeeds before the run is started again",
    time_to_try="15 min",
    gain=0.95,
    confidence=0.85,
)
WHO_AM_I = Fix(
    action="See which account the task really runs as, and what it may do on that resource",
    change=Change.DIAGNOSE,
    impact="shows a wrong or default service account, or a missing binding",
    validate="the account is the one that was meant, or is not",
    time_to_try="5 min",
    gain=0.3,
    confidence=0.8,
    command=(
        "gcloud auth list[[; gcloud policy-troubleshoot iam {resource} --principal-email={principal} --permission={permission}]]"
    ),
)
GRANT_BUCKET = Fix(
    action=(
        "Give the account[[ {principal}]] roles/storage.objectAdmin (or objectViewer to read) on the bucket, and test a write at start-up"
    ),
    change=Change.PERMISSION,
    impact="reads and writes of the bucket are allowed",
    validate="a test object can be written and deleted by the task's account; the next save succeeds",
    time_to_try="10 min",
    gain=0.95,
    confidence=0.85,
    command=(
        "gcloud storage buckets add-iam-policy-binding gs://BUCKET [[--member=serviceAccount:{principal}]] --role=roles/storage.objectAdmin"
    ),
)
GRANT_ACT_AS = Fix(
    action="Grant roles/iam.serviceAccountUser on the target account[[ {account}]] to the account that submits the job",
    change=Change.PERMISSION,
    impact="the job may run as that account",
    validate="submitting the job again is accepted",
    time_to_try="10 min",
    gain=0.95,
    confidence=0.9,
    command=(
        "gcloud iam service-accounts add-iam-policy-binding [[{account}]] --member=serviceAccount:SUBMITTER "
        "--role=roles/iam.serviceAccountUser"
    ),
)
ASK_QUOTA = Fix(
    action="Ask for more quota[[ of {metric}]] in the region, or end idle jobs that use it",
    change=Change.RESOURCES,
    impact="the job can be placed when the request is granted (hours to days)",
    validate="the quota page shows limit minus use at or above what the job needs",
    time_to_try="1 day",
    gain=0.9,
    confidence=0.7,
)
SMALLER = Fix(
    action="Ask for fewer or other accelerators, or use another region where quota or capacity is free",
    change=Change.RESOURCES,
    impact="the job starts now; training takes longer with fewer devices",
    validate="the job leaves PENDING within 15 minutes",
    time_to_try="20 min",
    gain=0.7,
    confidence=0.6,
)
RETRY_CAPACITY = Fix(
    action="Retry later with backoff, reserve capacity, or use queued or flex-start provisioning",
    change=Change.RESOURCES,
    impact="stock changes within hours; a reservation removes the risk",
    validate="the job leaves PENDING",
    time_to_try="1 h",
    gain=0.7,
    confidence=0.6,
)
RENEW_LOGIN = Fix(
    action=(
        "Renew or provide the credentials: attach a service account (workload identity) instead of a user's login or a key file "
        "that expires"
    ),
    change=Change.PERMISSION,
    impact="the client can authenticate for the whole run",
    validate="a read of the same resource works in the same environment before the start",
    time_to_try="15 min",
    gain=0.9,
    confidence=0.8,
)
HUB_ACCESS = Fix(
    action="Accept the model's terms with the account of the token, and give the job that token as a secret (HF_TOKEN)",
    change=Change.PERMISSION,
    impact="the download is allowed",
    validate="hf auth whoami names the account, and the config file of the repository downloads",
    time_to_try="15 min",
    gain=0.95,
    confidence=0.85,
)
WANDB_LOGIN = Fix(
    action="Give the job WANDB_API_KEY as a secret, or set WANDB_MODE=offline",
    change=Change.CONFIG,
    impact="tracking can log in, or no longer matters to the run",
    validate="the run prints its tracking address, or 'offline', within the first 50 steps",
    time_to_try="5 min",
    gain=0.95,
    confidence=0.85,
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="cloud-permissions-quota/iam-denied",
        cls=CLS,
        role=Role.CAUSE,
        kind="IAM permission missing",
        cues=("denied on resource", "denied on service account", "IAM_PERMISSION_DENIED", "denied for resource", "Permission denied on ", "denied for service account"),
        pattern=(
            r"Permission [`'\\\"]{0,2}(?P<permission>[\w.]+)[`'\\\"]{0,2} denied (?:on|for) (?:resource|service "
            r"account)(?:\s+[`'\\\"]{0,2}(?P<resource>[^\s'\"`\\(]+))?"
            r"|IAM_PERMISSION_DENIED|Permission denied on (?:resource|secret|dataset|table|project) (?P<resource2>\S+)"
        ),
        prints="Google Cloud APIs and their clients (403, PERMISSION_DENIED)",
        means="The calling account lacks this permission on this resource (or the resource does not exist; the answer is the same).",
        not_shown="Which account called, where the line does not say so.",
        matches=(
            "google.api_core.exceptions.PermissionDenied: 403 Permission 'aiplatform.endpoints.deploy' denied on resource "
            "'//aiplatform.googleapis.com/projects/p/locations/us-central1' (or it may not exist). [reason: \"IAM_PERMISSION_DENIED\"",
            "Permission 'iam.serviceAccounts.actAs' denied on service account trainer@p.iam.gserviceaccount.com (or it may not exist).",
            "sa@p.iam.gserviceaccount.com does not have storage.objects.get access to the Google Cloud Storage object. "
            "Permission 'storage.objects.get' denied on resource (or it may not exist).",
            "403 Permission denied on resource project my-proj.",
        ),
        rejects=(
            Reject("PermissionError: [Errno 13] Permission denied: '/mnt/out'", "a file system: io-checkpoint"),
            Reject("granting permission denied earlier on retry", "no resource"),
        ),
        fixes=(GRANT, WHO_AM_I),
        specificity=3,
        outranks=("nccl-distributed/", "pipeline-orchestration/gcpc-launcher", "cloud-permissions-quota/forbidden"),
    ),
    Signature(
        id="cloud-permissions-quota/no-access",
        cls=CLS,
        role=Role.CAUSE,
        kind="IAM permission on a bucket or data set missing",
        cues=(
            "does not have storage.",
            "does not have bigquery.",
            "does not have serviceusage.",
            "does not have aiplatform.",
            "IAM permission(s) to the bucket",
            "does not have permission to access",
            "should be granted access to the image",
            "does not have logging.",
            "does not have artifactregistry.",
            "does not have secretmanager.", "Anonymous caller does not have", "Caller does not have", "User does not have", "does not have",
        ),
        pattern=(
            r"(?P<principal>(?<![\w.+-])[\w.+-]{1,120}@[\w.-]+|Anonymous caller|User|Caller) does not have "
            r"(?P<permission>\w+\.\w+\.\w+) (?:access"
            r""
            r"|permission)(?: to (?:the )?(?P<resource>[^.\"']{1,120}))?"
            r"|[Ss]ervice account `?(?P<principal2>[^\s`]+)`? does not have .{0,120}IAM permission\(s\) to the bucket `?(?P<bucket>[^\s`]+)"
            r"|(?<!\S)(?P<principal3>\S{1,200}) does not have permission to access (?P<resource2>.{1,160})"
            r"|(?<!\S)(?P<principal4>\S{1,200}) should be "
            r"granted access to the image (?P<image>\S+)"
        ),
        prints="Cloud Storage, BigQuery and Vertex AI, through every client (google-cloud, gcsfs, TensorFlow, TensorStore)",
        means="The account was refused this access to the bucket, table or image.",
        matches=(
            'ValueError: PERMISSION_DENIED: Error writing "params/zarr.json": CURL error 403: {"error": {"code": 403, "message": '
            '"train@lab.iam.gserviceaccount.com does not have storage.objects.create access to the Google Cloud Storage object.',
            "Access Denied: Project p: User does not have bigquery.jobs.create permission in project p.",
            "Failed to create pipeline job. Error: Service account `sa@p.iam.gserviceaccount.com` does not have "
            "`[storage.objects.get, storage.objects.create]` IAM permission(s) to the bucket `b`.",
            "Vertex AI Service Agent 'service-1@gcp-sa-aiplatform-cc.iam.gserviceaccount.com' should be granted access to the "
            "image eu-docker.pkg.dev/p/r/i:1",
            "Vertex AI Service Agent service-1@gcp-sa.iam.gserviceaccount.com does not have permission to access Artifact "
            "Registry repository projects/p/r",
            "Anonymous caller does not have storage.objects.list access to the Google Cloud Storage bucket.",
        ),
        rejects=(
            Reject("sa@p.iam.gserviceaccount.com has storage.objects.create access", "granted"),
            Reject("bucket does not have storage. class set", "no permission named"),
        ),
        fixes=(GRANT_BUCKET, WHO_AM_I),
        specificity=3,
        outranks=("nccl-distributed/", "process-crash/", "pipeline-orchestration/gcpc-launcher", "cloud-permissions-quota/forbidden"),
    ),
    Signature(
        id="cloud-permissions-quota/act-as",
        cls=CLS,
        role=Role.CAUSE,
        kind="may not act as the service account",
        cues=("permission to act as service", "iam.serviceAccounts.actAs", "iam.serviceaccounts.actAs"),
        pattern=(
            r"do(?:es)? not have permission to act as service[_ ]account:? '?(?P<account>[\w.@-]+\w)|(?:lacks?|missing|caller"
            r"|required).{0,80}iam\.service[Aa]ccounts\.actAs"
        ),
        prints="Vertex AI and other Google services at the creation of a job that runs as another account",
        means=(
            "The submitting account lacks iam.serviceAccounts.actAs on the account under which the job should run (or that "
            "account does not exist)."
        ),
        matches=(
            "google.api_core.exceptions.PermissionDenied: 403 You do not have permission to act as service account: "
            "trainer@p.iam.gserviceaccount.com. (or it may not exist).",
            "caller does not have permission iam.serviceAccounts.actAs",
        ),
        rejects=(
            Reject("Running as service account: trainer@p.iam.gserviceaccount.com", "normal"),
            Reject("You do not have permission to view this job", "another permission"),
        ),
        fixes=(GRANT_ACT_AS, WHO_AM_I),
        specificity=3,
        outranks=("pipeline-orchestration/gcpc-launcher", "cloud-permissions-quota/forbidden"),
    ),
    Signature(
        id="cloud-permissions-quota/scope",
        cls=CLS,
        role=Role.CAUSE,
        kind="token scope",
        cues=("ACCESS_TOKEN_SCOPE_INSUFFICIENT", "insufficient authentication scopes"),
        pattern=r"ACCESS_TOKEN_SCOPE_INSUFFICIENT|insufficient authentication scopes",
        prints="Google Cloud APIs",
        means=(
            "The token lacks the scope of this API, whatever the account's roles: a VM's access scopes, or a job that runs as a "
            "service agent."
        ),
        matches=(
            "google.api_core.exceptions.PermissionDenied: 403 Request had insufficient authentication scopes. [reason: "
            '"ACCESS_TOKEN_SCOPE_INSUFFICIENT"',
        ),
        rejects=(
            Reject("scopes: https://www.googleapis.com/auth/cloud-platform", "a setting"),
            Reject("Permission 'aiplatform.models.get' denied on resource", "a role, not a scope"),
        ),
        fixes=(
            Fix(
                action="Run the job as a service account of your own (or create the machine with the cloud-platform scope)",
                change=Change.PERMISSION,
                impact="tokens carry the cloud-platform scope, so roles alone decide",
                validate="the same call succeeds in the task",
                gain=0.95,
                confidence=0.85,
            ),
        ),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/api-disabled",
        cls=CLS,
        role=Role.CAUSE,
        kind="API not enabled",
        cues=("before or it is disabled", "SERVICE_DISABLED", "accessNotConfigured", "not enabled on project"),
        pattern=(
            r"has not been used in project (?P<project>\S+) before or it is disabled(?:.{0,120}/apis/api/(?P<api>[\w.-]+))?|SERVICE_DISABLED"
            r"|accessNotConfigured|API \[(?P<api2>[^\]]+)\] not enabled on project"
        ),
        prints="Google Cloud APIs (403)",
        means="The API is not enabled in the project that the call is billed to.",
        not_shown="Whether that is the project that was meant: inside a Vertex task the default project is not the user's.",
        matches=(
            "403 Cloud Logging API has not been used in project 123 before or it is disabled. Enable it by visiting "
            "https://console.developers.google.com",
            "API [aiplatform.googleapis.com] not enabled on project [p]. Would you like to enable and retry",
        ),
        rejects=(
            Reject("Enabled API aiplatform.googleapis.com", "enabled"),
            Reject("this flag has not been used before or is deprecated", "not an API"),
        ),
        fixes=(
            Fix(
                action="Enable the API in the project[[ {project}]], or name the right project in the client",
                change=Change.PERMISSION,
                impact="calls are accepted a few minutes later",
                validate="the same call succeeds",
                gain=0.95,
                confidence=0.9,
                command="gcloud services enable {api}[[ --project={project}]]",
            ),
        ),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/quota",
        cls=CLS,
        role=Role.CAUSE,
        kind="quota",
        cues=(
            "exceed quota limits",
            "exceeded quota",
            "Quota exceeded",
            "QUOTA_EXCEEDED",
            "QuotaExceeded",
            "quota exhausted",
            "Quota exhausted",
            "exceeding quota",
            "exceeded. Limit: ",
            "in exceeding approved",
            "regional quota",
            "ResourceLimitExceeded",
            "VcpuLimitExceeded",
            "MaxSpotInstanceCountExceeded",
            "insufficient_quota",
            "exceeded your current quota",
            "exceeded. Limit:",
            "exceeded.  Limit:",
            "Quota limit",
            "LimitExceededException",
            "RATE_LIMIT_EXCEEDED", "quota exceeded for", "quota metrics exceeds quota limits", "quota metric exceeds quota limits", "quota metrics exceeds quota limit", "quota metric exceeds quota limit",
        ),
        pattern=(
            r"quota metrics? exceed(?:ed|s)? quota limits?: (?P<metric>[\w./,\- ]+)|(?i:quota) '?(?P<metric2>[\w-]+)'? (?:has "
            r"been )?exceeded\.\s+Limit: (?P<value>[\d.]+)(?: in region (?P<region>[\w-]+))?"
            r"|[Qq]uota exceeded for (?:quota metric|aiplatform|\S*googleapis|\S+ requests)|exceeded quota: (?P<metric3>\S+), "
            r"requested|QUOTA_EXCEEDED|\bQuotaExceeded\b|[Qq]uota exhausted|exceeding quota"
            r"|[Ii]nsufficient regional quota|ResourceLimitExceeded|VcpuLimitExceeded|MaxSpotInstanceCountExceeded"
            r"|insufficient_quota|exceeded your current quota|RATE_LIMIT_EXCEEDED"
            r"|Quota limit '(?P<metric4>[^']+)' has been exceeded|results? in exceeding approved .{0,60}[Qq]uota"
        ),
        unless=r"Disk quota|[Rr]etrying\b",
        prints="Vertex AI, Compute Engine, GKE, Kubernetes ResourceQuota, AWS, Azure",
        means="The request passes a quota (a limit of the project, region or namespace), so nothing was started.",
        not_shown="Who uses the rest of the quota.",
        matches=(
            "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_a100_gpus",
            "code=RESOURCE_EXHAUSTED, message=The following quota metrics exceed quota limits: "
            "aiplatform.googleapis.com/custom_model_training_cpus, cause=null",
            "Quota 'NVIDIA_A100_GPUS' exceeded.  Limit: 8.0 in region us-central1.",
            "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for "
            "aiplatform.googleapis.com/online_prediction_requests_per_base_model",
            'pods "train-0" is forbidden: exceeded quota: gpu-quota, requested: requests.nvidia.com/gpu=8, used: '
            "requests.nvidia.com/gpu=4, limited: requests.nvidia.com/gpu=8",
            "botocore.errorfactory.ResourceLimitExceeded: An error occurred (ResourceLimitExceeded) when calling the "
            "CreateTrainingJob operation",
            "Quota exhausted. Please reach out to vertex-ai support for batch prediction quota",
        ),
        rejects=(
            Reject("OSError: [Errno 122] Disk quota exceeded", "a file system's: io-checkpoint"),
            Reject("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 GiB", "device memory: oom"),
            Reject("Resources are insufficient in region: us-east5.", "no stock, not quota"),
        ),
        fixes=(ASK_QUOTA, SMALLER),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/no-capacity",
        cls=CLS,
        role=Role.CAUSE,
        kind="no capacity (stockout)",
        cues=(
            "Resources are insufficient in region",
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            "enough resources available to fulfill",
            "InsufficientInstanceCapacity",
            "InsufficientCapacity",
            "no more capacity in the zone",
            "do not have sufficient",
            "ZonalAllocationFailed",
            "AllocationFailed",
            "SkuNotAvailable",
            "OverconstrainedAllocationRequest",
            "GCE_STOCKOUT",
            "STOCKOUT",
            "scale.up.error.out.of.resources",
            "CapacityError",
        ),
        pattern=(
            r"Resources are insufficient in region: (?P<region>[\w-]+\w)|ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough "
            r"resources available to fulfill|Insufficient(?:Instance)?Capacity\b"
            r"|no more capacity in the zone \"?(?P<zone>[\w-]+)|do not have sufficient \S+ capacity|\b(?:Zonal)?AllocationFailed\b"
            r"|\bSkuNotAvailable\b|OverconstrainedAllocationRequest|\b(?:GCE_)?STOCKOUT\b"
            r"|scale\.up\.error\.out\.of\.resources|\bCapacityError\b"
        ),
        prints="Vertex AI, Compute Engine, GKE, Cloud TPU, AWS, Azure",
        means="The provider has no such machines free in that place now; quota is not the reason.",
        matches=(
            "Resources are insufficient in region: us-east5. Please try a different region or use a different accelerator.",
            "The zone 'projects/p/zones/us-central1-a' does not have enough resources available to fulfill the request. "
            "'(resource type:compute)'.",
            "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
            "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation: We currently do not have "
            "sufficient p4d.24xlarge capacity in the zone",
            'There is no more capacity in the zone "europe-west4-a"; you can try in another zone',
        ),
        rejects=(
            Reject("Insufficient nvidia.com/gpu", "Kubernetes scheduling: the cluster is full"),
            Reject("MemoryAllocationFailedError: cudaMalloc", "memory"),
        ),
        fixes=(SMALLER, RETRY_CAPACITY),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/machine-type",
        cls=CLS,
        role=Role.CAUSE,
        kind="machine type not offered",
        cues=(
            "Machine type ",
            "machine type ",
            "not supported for machine type",
            "ccelerator type",
            "is not supported in region",
            "unsupported machine", "is not available", "is not supported",
        ),
        pattern=(
            r"[Mm]achine type \\?[\"'](?P<key>[\w-]+)\\?[\"'] is not (?:supported|available)|[Aa]ccelerator(?: type)? \S+ is not "
            r"(?:supported|available)|is not supported (?:for machine type|in region)"
        ),
        prints="Vertex AI and Compute Engine (400, INVALID_ARGUMENT)",
        means="This machine or accelerator type is unknown, or not offered in the region or together.",
        matches=(
            'Machine type "a2-highgpu-3g" is not supported.',
            "Accelerator type NVIDIA_H100_80GB is not supported for machine type n1-standard-8",
        ),
        rejects=(
            Reject("Using machine type n1-standard-8", "a setting"),
            Reject("bf16 is not supported on this GPU", "a device's ability"),
        ),
        fixes=(
            Fix(
                action="Choose a machine and accelerator that the region offers together",
                change=Change.CONFIG,
                impact="the job is accepted",
                validate="the job is created and leaves PENDING",
                gain=0.95,
                confidence=0.85,
                command="gcloud compute accelerator-types list[[ --filter=zone:{region}]]",
            ),
        ),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/policy",
        cls=CLS,
        role=Role.CAUSE,
        kind="organisation policy, perimeter, billing",
        cues=(
            "Constraint constraints/",
            "violates constraint",
            "Request is prohibited by organization",
            "VPC_SERVICE_CONTROLS",
            "vpcServiceControls",
            "requires billing to be enabled",
            "BILLING_DISABLED",
            "billing account for the owning project is disabled",
            "absent billing account",
            "constraints/",
        ),
        pattern=(
            r"[Cc]onstraint \\?[\"']?(?P<key>constraints/[\w.]+)\\?[\"']? violated|violates "
            r"constraint\s+\W?(?P<key2>constraints/[\w.]+)|Request is prohibited by organization.?s policy|VPC_SERVICE_CONTROLS"
            r"|requires billing to be enabled|BILLING_DISABLED|billing account for the owning project is disabled|absent billing account"
        ),
        prints="Google Cloud APIs (403, FAILED_PRECONDITION)",
        means="A rule above the project refused the call: organisation policy, service perimeter or billing.",
        matches=(
            "Constraint constraints/compute.vmExternalIpAccess violated for project p.",
            "403 Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc",
            "403 This API method requires billing to be enabled. Please enable billing on project #p",
            "The billing account for the owning project is disabled in state absent",
        ),
        rejects=(
            Reject("IntegrityError: CHECK constraint failed: runs", "a database"),
            Reject("org policy: constraints/compute.vmExternalIpAccess is enforced, job obeys", "a setting"),
        ),
        fixes=(
            Fix(
                action="Ask the organisation's administrators for an exception, or change the job to obey the rule[[ {key}]]",
                change=Change.PERMISSION,
                impact="the call is allowed",
                validate="the same call succeeds",
                time_to_try="1 day",
                gain=0.8,
                confidence=0.7,
            ),
            WHO_AM_I,
        ),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/encryption-key",
        cls=CLS,
        role=Role.CAUSE,
        kind="encryption key (CMEK)",
        cues=("cloudkms.cryptoKeyVersions", "Cloud KMS key", "KMS key", "CryptoKey"),
        pattern=(
            r"(?:denied|lacks?|missing|required?|permission|not have).{0,120}(?P<permission>cloudkms\.cryptoKeyVersions\.\w+)(?:.{0,80}?(?P<resource>projects/[\w./:-]+/cryptoKeys/[\w-]+))?"
            r"|(?P<permission2>cloudkms\.cryptoKeyVersions\.\w+).{0,20}(?:denied|missing|required)(?:.{0,80}?(?P<resource2>projects/[\w./:-]+/cryptoKeys/[\w-]+))?"
            r"|(?:Cloud )?KMS key.{0,160}(?:denied|not found|not enabled|disabled|destroyed|permission|not usable)|CryptoKey(?:Version)?\b.{0,160}(?:not enabled|DISABLED|DESTROYED)"
        ),
        prints="Vertex AI, GCS and Compute Engine with customer-managed encryption keys",
        means="The service agent may not use the encryption key of the job, or the key is disabled or lies in another region.",
        not_shown="Which service agent asked, where the line does not say so: each product has its own.",
        matches=(
            "Service agent lacks the permission cloudkms.cryptoKeyVersions.useToEncrypt on the key",
            "Permission 'cloudkms.cryptoKeyVersions.useToEncrypt' denied on resource 'projects/p/locations/europe-west4/keyRings/ml/cryptoKeys/train' (or it may not exist).",
            "Cloud KMS key projects/p/locations/us/keyRings/r/cryptoKeys/k is not enabled, current state is: DISABLED.",
        ),
        rejects=(
            Reject("encryption: Cloud KMS key projects/p/keys/k in use", "a setting"),
            Reject("kms_key_name=projects/p/locations/us/keyRings/r/cryptoKeys/k", "a setting"),
        ),
        fixes=(
            Fix(
                action="Grant roles/cloudkms.cryptoKeyEncrypterDecrypter on the key[[ {resource}]] to the product's service agent (for Vertex AI service-PROJECT_NUMBER@gcp-sa-aiplatform.iam.gserviceaccount.com)",
                change=Change.PERMISSION,
                impact="the product may encrypt with the key",
                validate="submitting the job again is accepted",
                time_to_try="10 min",
                gain=0.95,
                confidence=0.85,
                command="gcloud kms keys add-iam-policy-binding {resource} --member=serviceAccount:SERVICE_AGENT --role=roles/cloudkms.cryptoKeyEncrypterDecrypter",
            ),
            WHO_AM_I,
        ),
        specificity=3,
        outranks=("cloud-permissions-quota/iam-denied", "cloud-permissions-quota/forbidden"),
    ),
    Signature(
        id="cloud-permissions-quota/network",
        cls=CLS,
        role=Role.CAUSE,
        kind="network peering",
        cues=(
            "RANGES_EXHAUSTED",
            "RANGES_NOT_RESERVED",
            "RANGES_DELETED_LATER",
            "not found for consumer project",
            "Router status is temporarily unavailable",
            "VPC peering",
        ),
        pattern=(
            r"RANGES_(?:EXHAUSTED|NOT_RESERVED|DELETED_LATER)|Reserved range: '?(?P<key>[^'\s]+)'? not found for consumer project"
            r"|Router status is temporarily unavailable|VPC peering.{0,60}(?:fail|not found|exhaust|missing)"
        ),
        prints="Vertex AI with a VPC network",
        means="The job's network could not be set up: the peered address range is missing or used up.",
        matches=(
            "RANGES_EXHAUSTED: no free range in the peering",
            "Reserved range: 'vertex-range' not found for consumer project 12",
            "Router status is temporarily unavailable",
        ),
        rejects=(Reject("ValueError: range exhausted", "not the network"), Reject("VPC peering established", "it works")),
        fixes=(
            Fix(
                action="Reserve a free, larger range for private services access and update the peering",
                change=Change.RESOURCES,
                impact="jobs get addresses again",
                validate="a small job starts in that network",
                time_to_try="1 h",
                gain=0.85,
                confidence=0.7,
            ),
        ),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/aws-azure-denied",
        cls=CLS,
        role=Role.CAUSE,
        kind="access to AWS or Azure refused",
        cues=(
            "(AccessDenied)",
            "AccessDeniedException",
            "is not authorized to perform",
            "AuthorizationFailure",
            "AuthorizationPermissionMismatch",
            "AuthorizationFailed",
            "HeadObject operation: Forbidden",
            "not authorized to perform this operation", " operation", "UnauthorizedOperation",
        ),
        pattern=(
            r"An error occurred \((?P<code>AccessDenied\w*|403)\) when calling the (?P<key>\w+) operation|(?P<principal>arn:\S+) "
            r"is not authorized to perform: (?P<permission>[\w:*]+)"
            r"|Authorization(?:Failure|PermissionMismatch|Failed)\b|request is not authorized to perform this operation"
            r"|UnauthorizedOperation"
        ),
        prints="boto3, s3fs, azure-storage-blob, adlfs",
        means="The account was refused the operation.",
        matches=(
            "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
            "User: arn:aws:sts::1:assumed-role/train/i-1 is not authorized to perform: s3:PutObject on resource: "
            "arn:aws:s3:::b/x because no identity-based policy",
            "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden",
            "azure.core.exceptions.HttpResponseError: This request is not authorized to perform this operation using this "
            "permission. ErrorCode:AuthorizationPermissionMismatch",
        ),
        rejects=(
            Reject("An error occurred (404) when calling the HeadObject operation: Not Found", "a missing object"),
            Reject("An error occurred (SlowDown) when calling the PutObject operation", "throttling: io-checkpoint"),
        ),
        fixes=(GRANT, RENEW_LOGIN),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/credentials",
        cls=CLS,
        role=Role.CAUSE,
        kind="no or expired credentials",
        cues=(
            "Reauthentication is needed",
            "invalid_grant",
            "DefaultCredentialsError",
            "default credentials were not found",
            "NoCredentialsError",
            "Unable to locate credentials",
            "ExpiredToken",
            "security token included in the request",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "DefaultAzureCredential failed",
            "RefreshError",
            "exceptions.Unauthenticated",
            "exceptions.Unauthorized",
            "TokenRefreshError",
        ),
        pattern=(
            r"Reauthentication is needed|invalid_grant|DefaultCredentialsError|default credentials were not found"
            r"|NoCredentialsError|Unable to locate credentials|\bExpiredToken\w*|security token included in the request is "
            r"(?:expired|invalid)"
            r"|InvalidAccessKeyId|SignatureDoesNotMatch|DefaultAzureCredential failed to retrieve a token"
            r"|auth\.exceptions\.RefreshError|api_core\.exceptions\.Unauthenticated: 401|exceptions\.Unauthorized: 401"
        ),
        prints="google-auth, botocore, azure-identity",
        means="The client had no valid credentials: none found, expired, or revoked.",
        matches=(
            "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found.",
            "google.auth.exceptions.RefreshError: Reauthentication is needed. Please run `gcloud auth application-default login` "
            "to reauthenticate.",
            "google.auth.exceptions.RefreshError: ('invalid_grant: Token has been expired or revoked.', {'error': 'invalid_grant'})",
            "botocore.exceptions.NoCredentialsError: Unable to locate credentials",
            "An error occurred (ExpiredToken) when calling the PutObject operation: The provided token has expired.",
        ),
        rejects=(
            Reject("Found credentials in environment variables.", "found"),
            Reject(
                "All attempts to get a Google authentication bearer token failed, returning an empty token.",
                "TensorFlow off Google Cloud: it goes on",
            ),
        ),
        fixes=(RENEW_LOGIN, WHO_AM_I),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/hub-gated",
        cls=CLS,
        role=Role.CAUSE,
        kind="gated or private model",
        cues=(
            "GatedRepoError",
            "gated repo",
            "Access to model",
            "Access to dataset",
            "Invalid user token",
            "Invalid username or password",
            "Client Error: Forbidden for url: https://huggingface.co",
            "Client Error: Unauthorized for url: https://huggingface.co",
        ),
        pattern=(
            r"GatedRepoError|(?:access a|access) gated repo|Access to (?:model|dataset) (?P<key>\S+) is restricted|Invalid user "
            r"token|Invalid username or password"
            r"|(?P<code>401|403) Client Error: (?:Unauthorized|Forbidden) for url: https://huggingface\.co/(?P<resource>\S+)"
        ),
        prints="huggingface_hub, transformers, datasets",
        means="The hub refused the download: the terms were not accepted, or no valid token was given.",
        matches=(
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1)",
            "Cannot access gated repo for url https://huggingface.co/org/model/resolve/main/config.json.",
            "Access to model org/model is restricted and you are not in the authorized list. Visit "
            "https://huggingface.co/org/model to ask for access.",
            "OSError: You are trying to access a gated repo.",
            "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://huggingface.co/api/models/org/private",
        ),
        rejects=(
            Reject("404 Client Error: Not Found for url: https://huggingface.co/org/modle", "a wrong name: config-error"),
            Reject("Model card: access is gated by terms", "a description"),
        ),
        fixes=(HUB_ACCESS,),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/tracker-auth",
        cls=CLS,
        role=Role.CAUSE,
        kind="experiment tracker refused",
        cues=(
            "api_key not configured",
            "user is not logged in",
            "wandb.errors.errors.AuthenticationError",
            "wandb.errors.AuthenticationError",
            "API key verification failed",
            "wandb: ERROR",
            "wandb.errors.CommError",
            "wandb.errors.errors.CommError",
        ),
        pattern=(
            r"api_key not configured \(no-tty\)|W&B API: user is not logged in|wandb\.errors\.(?:errors\.)?AuthenticationError"
            r"|API key verification failed|wandb: ERROR .{0,120}(?:permission denied|40[13])"
            r"|wandb\.errors\.(?:errors\.)?CommError: .{0,160}(?:permission denied|not found during upsertBucket|403|401)"
        ),
        prints="wandb (UsageError, AuthenticationError, CommError)",
        means="The tracker could not log in or was refused the project.",
        not_shown="That training would fail without it.",
        matches=(
            "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
            "wandb.errors.errors.AuthenticationError: The API key you provided is either invalid or missing.",
            "wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        ),
        rejects=(
            Reject("wandb: Currently logged in as: team", "logged in"),
            Reject("wandb: ERROR Failed to serialize metric: NaN", "another error"),
        ),
        fixes=(WANDB_LOGIN,),
        specificity=2,
    ),
    Signature(
        id="cloud-permissions-quota/kubernetes-forbidden",
        cls=CLS,
        role=Role.CAUSE,
        kind="Kubernetes RBAC",
        cues=(" is forbidden: ", "cannot create resource", "cannot get resource", "cannot list resource", "is forbidden: User ", "cannot delete resource ", "cannot patch resource ", "cannot watch resource "),
        pattern=(
            r"is forbidden: User \\?\"(?P<principal>[^\"\\]+)\\?\" cannot (?P<permission>\w+) resource \\?\"(?P<resource>[^\"\\]+)"
            r"|cannot (?P<permission2>get|create|list|patch|watch|delete) resource \\?\"(?P<resource2>\w+)"
        ),
        prints="the Kubernetes API server (403 Forbidden)",
        means="The service account may not do this in this namespace.",
        matches=(
            'pods is forbidden: User "system:serviceaccount:kubeflow:runner" cannot create resource "pods" in API group "" in '
            'the namespace "ml"',
        ),
        rejects=(
            Reject('pods "a" is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=8', "a quota"),
            Reject("cannot create resource pool for workers", "not Kubernetes"),
        ),
        fixes=(GRANT,),
        specificity=3,
    ),
    Signature(
        id="cloud-permissions-quota/forbidden",
        cls=CLS,
        role=Role.CAUSE,
        kind="refused by a cloud API",
        cues=(
            "exceptions.Forbidden",
            "exceptions.PermissionDenied",
            "StatusCode.PERMISSION_DENIED",
            "403 Forbidden",
            "HttpError 403",
            "HTTP response code 403",
        ),
        pattern=(
            r"exceptions\.(?:Forbidden|PermissionDenied): 403\b|StatusCode\.PERMISSION_DENIED|HttpError 403\b|403 "
            r"Forbidden.{0,80}(?:googleapis|amazonaws|azure|blob\.core)|HTTP response code 403"
        ),
        prints="google-api-core, gRPC, googleapiclient, TensorFlow's GCS file system",
        means="A cloud API answered 403 to this account.",
        not_shown="Which permission is missing.",
        matches=(
            "google.api_core.exceptions.Forbidden: 403 POST "
            "https://storage.googleapis.com/upload/storage/v1/b/x/o?uploadType=multipart: ...",
            "\tstatus = StatusCode.PERMISSION_DENIED",
            "Error executing an HTTP request: HTTP response code 403",
        ),
        rejects=(
            Reject("google.api_core.exceptions.NotFound: 404 GET https://storage.googleapis.com/x", "missing, not refused"),
            Reject("image 403 of 1000 done", "a number"),
        ),
        fixes=(GRANT, WHO_AM_I),
        specificity=2,
    ),
)
