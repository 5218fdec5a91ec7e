"""What an exception without a signature of its own says: by type, by message and by where in the stack it rose.

The first rule that fits wins, so the order is: what the type says by itself (memory, file system, cloud), then where it
rose (environment, checkpoint code, data-loading code, configuration code), then when (before or after training progress).
``frames`` is searched in each ``file:function`` of the stack.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, ExceptionRule, Fix

# Functions and library files that only run while samples are read, decoded, mapped or batched. Files of launchers and of
# training loops must not be here: they stand in every stack.
DATA_FRAMES = (
    r":(?:__getitem__|__getitems__|_?collate\w*|\w+_collate(?:_fn)?|_?tokeni[sz]e\w*|_?encode_(?:batch|example|row)\w*|_?pre_?process\w*|_?prepare_(?:data|dataset|batch|sample|example|row)\w*"
    r"|read_(?:csv|table|parquet|json|excel|feather|sql|record|sample|row|line|image|audio|video|shard|example)\w*"
    r"|_?load_(?:image|audio|video|sample|record|row|example|shard|item|data|dataset|datasets|split|table|csv|jsonl?)"
    r"|_?decode_?(?:image|audio|video|sample|record|row|example|jpeg|png|frame|frames|line)?|_?parse_(?:row|line|record|example|sample|date|day|field|label|annotation)s?|imread"
    r"|get_batch_samples|_?augment\w*|apply_function|_prepare_split\w*|_generate_(?:tables|examples)|train_dataloader|val_dataloader|test_dataloader)$"
    r"|torch/utils/data/|/datasets/(?:arrow_dataset|iterable_dataset|builder|table|packaged_modules/)|tensorflow/python/data/|tensorflow/python/ops/script_ops"
    r"|/webdataset/|/streaming/base/|/torchvision/(?:datasets|transforms|io)|/albumentations/|/nvidia/dali/|/PIL/|/librosa/|/soundfile|/decord/|/pandas/|/pyarrow/|data_loading_utils"
)
# Places that handle one sample: a file missing here is in the manifest, not in a flag.
SAMPLE_FRAMES = r":(?:__getitem__|__getitems__|_?collate\w*|\w+_collate(?:_fn)?|apply_function|_?decode\w*)$|torch/utils/data/_utils/|/datasets/iterable_dataset|/webdataset/|/streaming/base/|tensorflow/python/ops/script_ops"
CHECKPOINT_FRAMES = (
    r"torch/serialization\.py|/safetensors/|/h5py/|h5py/_|/orbax/|/tensorstore|torch/distributed/checkpoint|/saving/(?:saving_lib|legacy|saving_api)|training/checkpoint|checkpoint_io\.py|/checkpointing"
    r"|:(?:_?save_?(?:checkpoint|model|pretrained|state|weights|optimizer\w*)\w*|_?load_?(?:checkpoint|weights|state)\w*|dump_checkpoint|_?restore(?:_?(?:checkpoint|state|from|latest|weights|params|model|train_state))?|msgpack_restore|resume_from\w*|resume_checkpoint|_?resume)$"
)
SAVE_FRAMES = r":(?:_?save\w*|dump\w*|write_checkpoint\w*|atomic_save|_?export\w*)$"
# Files of configuration libraries that are left again before training starts.
CONFIG_LIBRARY_FRAMES = (
    r"argparse\.py:|absl/flags/|hf_argparser\.py:|omegaconf/(?:dictconfig|listconfig|basecontainer|base|_utils|_impl)\.py:|ml_collections/|yacs/config\.py:|mmengine/(?:config|registry)/|mmcv/utils/(?:config|registry)\.py:"
    r"|fvcore/common/(?:config|registry)\.py:|configparser\.py:|/yaml/|tomllib|/toml/|ruamel|hydra/_internal/(?:config_loader|defaults_list|config_repository|core_plugins)|/models/auto/|torch/nn/modules/container\.py:__getitem__|pydantic/main\.py:|pydantic_settings|/dacite/|draccus"
)
CONFIG_FUNCTION_FRAMES = (
    r":(?:from_pretrained|parse_args\w*|parse_known_args|parse_config\w*|get_(?:\w+_)?config|load_(?:cfg|config|yaml|settings)\w*|read_config|make_config|validate_(?:config|args|arguments)|_validate_args|__post_init__|_do_sanity_check"
    r"|(?:build|create|make|get|init|setup)_(?:model|optimizer|optim|scheduler|lr_scheduler|tokenizer|trainer|loss|criterion|network|backbone|policy|env|mesh|device_mesh)\w*|configure_optimizers|get_peft_model|initialize_megatron|prepare_model_for_\w+)$"
)
EVALUATION_FRAMES = r":(?:compute_metrics|on_\w+|log_metrics|report\w*|evaluate_metrics|summari[sz]e\w*)$"

LOOK_AT_SAMPLE = Fix(
    action="Load the sample that fails by itself (same index, same transform) and repair, drop or handle it and its like[[; the code is at {location}]]",
    change=Change.DATA,
    impact="the record that ends the run is known and no longer does so",
    validate="a pass over the whole data set without the model finishes; the run gets past the step[[ {step}]]",
    time_to_try="20 min",
    gain=0.85,
    confidence=0.7,
)
NAME_SAMPLE = Fix(
    action="Raise again with the index or path of the sample in the message, and run the loader with num_workers=0 to see it",
    change=Change.CODE,
    impact="names the sample instead of a bare exception",
    validate="the message holds an index or path that fails every time",
    gain=0.4,
    confidence=0.8,
)
FIX_CODE = Fix(
    action="Correct the call at the frame shown[[ ({location})]] against the documentation of the installed version",
    change=Change.CODE,
    impact="the program gets past this line",
    validate="the run starts and makes 50 steps",
    gain=0.9,
    confidence=0.7,
)
FIX_SETTING = Fix(
    action="Correct the setting, name or path that the message refuses[[ (used at {location})]]",
    change=Change.CONFIG,
    impact="the program starts",
    validate="the run gets past start-up and makes 50 steps",
    time_to_try="5 min",
    gain=0.9,
    confidence=0.7,
)
CHECK_DISK = Fix(
    action="Check space, quota, mount and permissions of the path as the job's own user (df -h, df -i, mount, ls -l)",
    change=Change.DIAGNOSE,
    impact="shows why the file system refused",
    validate="a file of a checkpoint's size can be written there and read back",
    time_to_try="5 min",
    gain=0.5,
    confidence=0.85,
    command="df -h[[ {output_dir}]] && df -i[[ {output_dir}]]",
)
OLDER_CHECKPOINT = Fix(
    action="Resume from the newest complete checkpoint[[: {checkpoint}]]",
    change=Change.USE_CHECKPOINT,
    impact="goes on without the damaged or half-written one",
    validate="loading works and the first losses continue the curve",
    gain=0.85,
    confidence=0.7,
)
RETRY_DATA = Fix(
    action="Copy the data to local storage, or raise retries and time-outs of its reader, and resume[[ from {checkpoint}]]",
    change=Change.DATA,
    impact="takes the remote source out of the training loop",
    validate="200 steps without a connection error",
    time_to_try="1 h",
    gain=0.8,
    confidence=0.65,
)
COUNT_BATCHES = Fix(
    action="Print the number of samples and batches after loading and filtering, and stop with a clear message when it is 0",
    change=Change.DIAGNOSE,
    impact="shows what left nothing to average over",
    validate="the filter, path or shard that leaves nothing is known",
    time_to_try="5 min",
    gain=0.6,
    confidence=0.7,
)

EXCEPTION_RULES: tuple[ExceptionRule, ...] = (
    # ---- the type (or errno) says it -----------------------------------------------------------------------------
    ExceptionRule(
        id="exception/memory-error",
        cls="oom",
        kind="host memory",
        means="an allocation in host memory failed",
        types=("MemoryError", "_ArrayMemoryError", "ArrayMemoryError", "OutOfMemoryError", "ResourceExhaustedError"),
        specificity=3,
        fixes=(
            Fix(
                "Load the data in pieces (memory map, chunks, fewer loader workers), or give the job more host memory",
                Change.CODE,
                "the peak stays below the limit",
                "resident memory stays flat over 200 steps",
                time_to_try="30 min",
                gain=0.8,
                confidence=0.7,
            ),
        ),
        examples=('  File "/w/load.py", line 12, in read_all\n    x = np.concatenate(parts)\nMemoryError',),
    ),
    ExceptionRule(
        id="exception/floating-point",
        cls="nan-inf",
        kind="floating-point check",
        means="a numerical check met NaN, infinity or a loss scale at its minimum",
        types=("FloatingPointError",),
        specificity=3,
        fixes=(
            Fix(
                "Lower the learning rate[[ from {learning_rate} to {learning_rate_tenth}]] and clip gradients, from the last good checkpoint[[ {checkpoint}]]",
                Change.HYPERPARAMETER,
                "the values stay finite",
                "loss and gradient norm are finite over the next 200 steps",
                gain=0.7,
                confidence=0.6,
            ),
        ),
        examples=('  File "/w/t.py", line 12, in train\n    y = a / b\nFloatingPointError: overflow encountered in multiply',),
    ),
    ExceptionRule(
        id="exception/file-system",
        cls="io-checkpoint",
        kind="file system",
        means="the file system refused: full, over quota, read-only, stale, failing, or out of descriptors",
        types=("OSError", "IOError", "PermissionError", "BlockingIOError"),
        message=r"\[Errno (?:5|13|24|27|28|30|116|121|122)\]|No space left on device|Read-only file system|Disk quota exceeded|Stale file handle|Too many open files|Input/output error",
        specificity=3,
        fixes=(CHECK_DISK, OLDER_CHECKPOINT),
        examples=(
            '  File "/w/t.py", line 12, in main\n    f.write(x)\nOSError: [Errno 122] Disk quota exceeded',
            "  File \"/w/t.py\", line 12, in main\n    open(p, 'wb')\nPermissionError: [Errno 13] Permission denied: '/models/m.bin'",
        ),
    ),
    ExceptionRule(
        id="exception/cloud-refused",
        cls="cloud-permissions-quota",
        kind="cloud permission or quota",
        means="a cloud service refused: not allowed, not authenticated, or over quota",
        types=("Forbidden", "PermissionDenied", "Unauthorized", "Unauthenticated", "ResourceExhausted", "TooManyRequests", "DefaultCredentialsError", "RefreshError", "NoCredentialsError", "CredentialUnavailableError", "ClientAuthenticationError"),
        specificity=3,
        fixes=(
            Fix(
                "Give the job's service account the permission (or quota) that the message names",
                Change.PERMISSION,
                "the call is allowed",
                "the same call works as the job's account",
                time_to_try="30 min",
                gain=0.9,
                confidence=0.8,
            ),
        ),
        examples=(
            '  File "/v/google/cloud/storage/blob.py", line 90, in download\nForbidden: 403 GET https://storage.googleapis.com/b/o: caller does not have storage.objects.get access',
        ),
    ),
    ExceptionRule(
        id="exception/cloud-client-refused",
        cls="cloud-permissions-quota",
        kind="cloud permission or quota",
        means="a cloud service refused the request",
        types=("ClientError", "HttpError", "HttpResponseError", "GoogleAPICallError"),
        message=r"(?i)access ?denied|forbidden|\b40[13]\b|not authori[sz]ed|quota|throttl|rate ?limit|SlowDown",
        specificity=3,
        fixes=(
            Fix(
                "Give the job's account the permission (or quota) that the message names",
                Change.PERMISSION,
                "the call is allowed",
                "the same call works as the job's account",
                time_to_try="30 min",
                gain=0.9,
                confidence=0.8,
            ),
        ),
        examples=('  File "/v/botocore/client.py", line 9, in _make_api_call\nClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied',),
    ),
    ExceptionRule(
        id="exception/cloud-storage-service",
        cls="io-checkpoint",
        kind="storage service",
        means="a storage service failed or timed out",
        types=("ServiceUnavailable", "InternalServerError", "BadGateway", "GatewayTimeout", "DeadlineExceeded", "TransferError", "DataCorruption", "EndpointConnectionError"),
        specificity=2,
        fixes=(OLDER_CHECKPOINT,),
        examples=('  File "/v/google/cloud/storage/blob.py", line 90, in upload\nServiceUnavailable: 503 POST https://storage.googleapis.com/upload: backend error',),
    ),
    # ---- environment and distributed set-up ----------------------------------------------------------------------
    ExceptionRule(
        id="exception/environment-variable",
        cls="config-error",
        kind="missing environment variable",
        means="the code reads an environment variable that is not set",
        types=("KeyError",),
        frames=r"(?:<frozen os>|/os\.py|\bos\.py):__getitem__$",
        specificity=3,
        fixes=(
            Fix(
                "Export the variable in the job's environment on every node, or give the code a default[[ (read at {location})]]",
                Change.ENVIRONMENT,
                "the configuration can be built",
                "the program gets past start-up",
                time_to_try="5 min",
                gain=0.95,
                confidence=0.9,
            ),
        ),
        examples=(
            '  File "/w/utils.py", line 171, in get_config\n    gas=int(os.environ[\'ACC_STEPS\']),\n  File "<frozen os>", line 685, in __getitem__\nKeyError: \'ACC_STEPS\'',
            '  File "/usr/lib/python3.10/os.py", line 680, in __getitem__\n    raise KeyError(key) from None\nKeyError: \'DATA_ROOT\'',
        ),
    ),
    ExceptionRule(
        id="exception/distributed-type",
        cls="nccl-distributed",
        kind="distributed set-up or collective",
        means="the process group, its store or a collective failed",
        types=("DistBackendError", "DistNetworkError", "DistStoreError", "DistError", "RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousClosedError", "RendezvousError", "RendezvousStateError"),
        specificity=2,
        fixes=(
            Fix("Look at every rank's log for an earlier failure, then at host names, ports and interfaces", Change.DIAGNOSE, "tells a consequence from a cause", "the first failing rank is known", gain=0.5, confidence=0.8),
        ),
        examples=('  File "/v/torch/distributed/distributed_c10d.py", line 4, in barrier\nDistBackendError: NCCL communicator was aborted',),
    ),
    # ---- checkpoint code -----------------------------------------------------------------------------------------
    ExceptionRule(
        id="exception/checkpoint-unfinished",
        cls="io-checkpoint",
        kind="incomplete checkpoint",
        means="a file that belongs to every complete checkpoint is missing: its writing was interrupted",
        types=("FileNotFoundError", "CheckpointException", "NotFoundError"),
        message=r"\.metadata\b|\.distcp\b|_CHECKPOINT_METADATA|commit_success|\.index\.json|_METADATA\b",
        specificity=2,
        fixes=(OLDER_CHECKPOINT,),
        examples=("  File \"/v/torch/distributed/checkpoint/filesystem.py\", line 9, in read_metadata\nFileNotFoundError: [Errno 2] No such file or directory: 'out/step-20/.metadata'",),
    ),
    ExceptionRule(
        id="exception/checkpoint-io",
        cls="io-checkpoint",
        kind="checkpoint can't be written or read",
        means="writing or reading a checkpoint failed in the file or archive itself",
        types=("OSError", "IOError", "EOFError", "UnpicklingError", "BadZipFile", "SafetensorError", "CheckpointException", "BlockingIOError", "TimeoutError", "RuntimeError", "XlaRuntimeError", "ConnectionError", "ValueError", "ReadError", "JSONDecodeError", "DecodeError", "ExtraData", "OutOfData", "UnpackException", "FormatError", "error", "LZMAError"),
        message=r"(?i)\bfiles?\b|\barchive\b|\bzip|pickle|\bstream|truncat|corrupt|\bheader\b|\beof\b|ran out of input|\bwrit(?:e|ing|ten)\b|\bread(?:ing|er)?\b|errno|\bstorage\b|magic|\bunpack|incomplete|unexpected end|decompress|checksum|\bcrc\b|expecting value|extra data|unterminated|not a (?:gzip|zip|bzip2)|^$",
        frames=CHECKPOINT_FRAMES,
        specificity=2,
        fixes=(OLDER_CHECKPOINT, CHECK_DISK),
        examples=(
            '  File "/v/torch/serialization.py", line 1040, in _legacy_load\n    magic_number = pickle_module.load(f)\nEOFError: Ran out of input',
            '  File "/v/flax/serialization.py", line 431, in msgpack_restore\n    state_dict = msgpack.unpackb(\nValueError: Unpack failed: incomplete input',
            '  File "/w/ckpt.py", line 44, in save_checkpoint\n    os.replace(tmp, path)\nOSError: [Errno 18] Invalid cross-device link',
        ),
    ),
    ExceptionRule(
        id="exception/save-target-missing",
        cls="io-checkpoint",
        kind="output can't be written",
        means="the place to write to is gone or was never made",
        types=("FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "FileExistsError"),
        frames=SAVE_FRAMES,
        before_training=False,
        specificity=2,
        fixes=(CHECK_DISK,),
        examples=("  File \"/w/ckpt.py\", line 44, in save_checkpoint\n    torch.save(x, path)\nFileNotFoundError: [Errno 2] No such file or directory: 'out/a.pt'",),
    ),
    ExceptionRule(
        id="exception/checkpoint-keys",
        cls="config-error",
        kind="checkpoint doesn't fit the code",
        means="the checkpoint lacks an entry that the code reads from it",
        types=("KeyError",),
        message=r"state_dict|'(?:optimizer|optimizer_states?|scheduler|lr_scheduler|scaler|ema|global_step)'",
        specificity=2,
        fixes=(
            Fix(
                "Print the keys of the checkpoint, and read what is there (or load one that this code wrote)",
                Change.CODE,
                "the entry is found",
                "loading works and the first losses continue the curve",
                gain=0.9,
                confidence=0.8,
            ),
        ),
        examples=("  File \"/w/train.py\", line 40, in resume\n    model.load_state_dict(ck['model_state_dict'])\nKeyError: 'model_state_dict'",),
    ),
    # ---- data ----------------------------------------------------------------------------------------------------
    ExceptionRule(
        id="exception/configuration-library",
        cls="config-error",
        kind="configuration refused",
        means="a configuration library refused a key, type or value",
        frames=CONFIG_LIBRARY_FRAMES,
        types=("KeyError", "ValueError", "TypeError", "AttributeError", "AssertionError", "FileNotFoundError", "RuntimeError", "ParserError", "ArgumentError", "ImportError"),
        before_training=True,
        specificity=3,
        fixes=(FIX_SETTING,),
        examples=('  File "/v/ml_collections/config_dict/config_dict.py", line 800, in __getitem__\nKeyError: "\'Did you mean \\"warmup_steps\\" instead of \\"warmup_step\\"?\'"',),
    ),
    ExceptionRule(
        id="exception/data-connection",
        cls="data-pipeline",
        kind="data source unreachable",
        means="a connection failed while data was read",
        types=("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectTimeout", "ReadTimeout", "HTTPError", "URLError", "ChunkedEncodingError", "ProtocolError", "TimeoutError", "SSLError", "gaierror", "ClientConnectorError", "ClientResponseError", "MaxRetryError"),
        frames=DATA_FRAMES,
        specificity=2,
        fixes=(RETRY_DATA,),
        examples=('  File "/v/datasets/iterable_dataset.py", line 2093, in __iter__\n    for key, example in it:\nConnectionError: Max retries exceeded',),
    ),
    ExceptionRule(
        id="exception/loader-worker",
        cls="data-pipeline",
        kind="sample that can't be used",
        means="a data-loading worker raised it while it read, transformed or batched samples",
        worker=True,
        specificity=3,
        fixes=(LOOK_AT_SAMPLE, NAME_SAMPLE),
        examples=(
            "  File \"/v/torch/utils/data/_utils/worker.py\", line 351, in _worker_loop\n    data = fetcher.fetch(index)\n  File \"/w/data.py\", line 24, in __getitem__\n    plan = self.meta[i][\"plan\"]\nKeyError: 'plan'",
        ),
    ),
    ExceptionRule(
        id="exception/sample-missing",
        cls="data-pipeline",
        kind="listed sample that does not exist",
        means="a file that the data set lists is not there: the manifest and the files differ",
        types=("FileNotFoundError",),
        frames=SAMPLE_FRAMES,
        specificity=2,
        fixes=(
            Fix(
                "Compare the manifest with the files, and copy or drop what is missing",
                Change.DATA,
                "every listed sample exists",
                "a pass over the manifest finds all files; the run gets past this sample",
                time_to_try="20 min",
                gain=0.9,
                confidence=0.8,
            ),
            NAME_SAMPLE,
        ),
        examples=("  File \"/w/data.py\", line 24, in __getitem__\n    im = Image.open(p)\nFileNotFoundError: [Errno 2] No such file or directory: 'img/0007.jpg'",),
    ),
    ExceptionRule(
        id="exception/data-file-lost",
        cls="data-pipeline",
        kind="data file that is gone",
        means="a data file could not be found although reading had worked before",
        types=("FileNotFoundError",),
        frames=DATA_FRAMES,
        before_training=False,
        specificity=2,
        fixes=(LOOK_AT_SAMPLE,),
        examples=("  File \"/v/pandas/io/common.py\", line 24, in read_csv\nFileNotFoundError: [Errno 2] No such file or directory: 'parts/7.csv'",),
    ),
    ExceptionRule(
        id="exception/data-code",
        cls="data-pipeline",
        kind="sample that can't be used",
        means="it rose while samples were read, decoded, tokenised, mapped or batched",
        frames=DATA_FRAMES,
        types=(
            "KeyError",
            "ValueError",
            "IndexError",
            "TypeError",
            "AttributeError",
            "AssertionError",
            "RuntimeError",
            "OSError",
            "IOError",
            "EOFError",
            "UnicodeDecodeError",
            "ZeroDivisionError",
            "StopIteration",
            "Exception",
            "LookupError",
            "ArithmeticError",
            "OverflowError",
            "error",
            "UnpicklingError",
            "InvalidArgumentError",
            "ParserError",
            "SyntaxError",
        ),
        specificity=2,
        fixes=(LOOK_AT_SAMPLE, NAME_SAMPLE),
        examples=(
            "  File \"/w/data.py\", line 24, in __getitem__\n    plan = self.meta[i][\"plan\"]\nKeyError: 'plan'",
            "  File \"/w/corpus.py\", line 16, in __getitem__\n    raise ValueError(\"bad\")\nValueError: shard 2: record 90 has 17 tokens, expected 33",
            "  File \"/v/datasets/arrow_dataset.py\", line 3882, in apply_function\n  File \"/v/trl/trainer/sft_trainer.py\", line 1296, in add_eos\nAttributeError: 'NoneType' object has no attribute 'endswith'",
            "  File \"/w/data.py\", line 30, in collate_fn\n    y = torch.tensor([b['y'] for b in batch])\nTypeError: must be real number, not NoneType",
        ),
    ),
    # ---- numbers -------------------------------------------------------------------------------------------------
    ExceptionRule(
        id="exception/non-finite-check",
        cls="nan-inf",
        kind="check found non-finite values",
        means="the program's own check met NaN or infinity, or values that only NaN can give",
        types=("AssertionError", "ValueError", "RuntimeError", "Exception", "ArithmeticError", "InvalidArgumentError", "NonFiniteError"),
        message=r"(?i)\bnans?\b|\bnon-?finite\b|\bnot finite\b|\binfinit|\binfs?\b|is_?finite|\bprobabilit(?:y|ies)\b.{0,40}(?:outside|not (?:in|within|between)|<\s?0|>\s?1)|Loss is (?:nan|inf)",
        specificity=2,
        fixes=(
            Fix(
                "Find the first step with a non-finite loss or gradient, and resume from the checkpoint before it[[ ({checkpoint})]] with a lower rate[[ ({learning_rate_tenth})]] and clipping",
                Change.HYPERPARAMETER,
                "the values stay finite",
                "loss and gradient norm are finite over the next 200 steps",
                time_to_try="30 min",
                gain=0.7,
                confidence=0.6,
            ),
        ),
        examples=(
            '  File "/w/metrics.py", line 9, in auc\n    assert ok, msg\nAssertionError: probabilities outside [0, 1] for 64 rows',
            '  File "/w/t.py", line 9, in train\nValueError: loss is NaN at step 12',
        ),
    ),
    ExceptionRule(
        id="exception/zero-division-empty",
        cls="data-pipeline",
        kind="nothing to average over",
        means="a division by zero, mostly an average over no batches or samples",
        types=("ZeroDivisionError",),
        specificity=1,
        fixes=(COUNT_BATCHES,),
        examples=('  File "/w/train.py", line 109, in train_epoch\n    return total / n\nZeroDivisionError: float division by zero',),
    ),
    ExceptionRule(
        id="exception/stop-iteration",
        cls="data-pipeline",
        kind="exhausted or empty data set",
        means="an iterator over data had no (further) element",
        types=("StopIteration", "OutOfRangeError", "DatasetExhausted"),
        specificity=2,
        fixes=(COUNT_BATCHES,),
        examples=('  File "/w/train.py", line 30, in main\n    batch = next(it)\nStopIteration',),
    ),
    # ---- code and configuration ----------------------------------------------------------------------------------
    ExceptionRule(
        id="exception/missing-path",
        cls="config-error",
        kind="path that does not exist",
        means="a file or directory that a flag, configuration or constant names is not there",
        types=("FileNotFoundError", "NotADirectoryError", "IsADirectoryError"),
        specificity=2,
        fixes=(
            Fix(
                "Correct the path, the working directory or the mount of the volume[[ (used at {location})]]",
                Change.CONFIG,
                "the program finds its file",
                "ls of the path works from inside the job",
                time_to_try="5 min",
                gain=0.95,
                confidence=0.8,
            ),
        ),
        examples=("  File \"/w/train.py\", line 20, in main\n    vocab = open(args.vocab)\nFileNotFoundError: [Errno 2] No such file or directory: 'vocab.txt'",),
    ),
    ExceptionRule(
        id="exception/cloud-object-missing",
        cls="config-error",
        kind="path that does not exist",
        means="a bucket or object that the configuration names does not exist",
        types=("NotFound", "NoSuchBucket", "NoSuchKey", "ResourceNotFoundError"),
        specificity=2,
        fixes=(FIX_SETTING,),
        examples=('  File "/v/google/cloud/storage/client.py", line 90, in get_bucket\nNotFound: 404 GET https://storage.googleapis.com/storage/v1/b/x: The specified bucket does not exist.',),
    ),
    ExceptionRule(
        id="exception/broken-code",
        cls="config-error",
        kind="code that can't run as installed",
        means="the program or a package it imports has a wrong name, wrong syntax or a missing part",
        types=("NameError", "UnboundLocalError", "SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "NotImplementedError"),
        specificity=2,
        fixes=(FIX_CODE,),
        examples=("  File \"/w/train.py\", line 20, in main\n    loss = criterion(out, y)\nNameError: name 'criterion' is not defined",),
    ),
    ExceptionRule(
        id="exception/set-up-code",
        cls="config-error",
        kind="set-up refused",
        means="it rose while arguments were parsed or the model, optimizer or trainer was built",
        types=("ValueError", "KeyError", "TypeError", "AttributeError", "AssertionError", "RuntimeError", "OSError", "IndexError", "Exception", "NotImplementedError"),
        frames=CONFIG_FUNCTION_FRAMES,
        before_training=True,
        specificity=2,
        fixes=(FIX_SETTING, FIX_CODE),
        examples=('  File "/w/model.py", line 20, in build_model\n    assert cfg.depth > 0\nAssertionError: depth must be positive',),
    ),
    ExceptionRule(
        id="exception/initialiser",
        cls="config-error",
        kind="set-up refused",
        means="a constructor refused its arguments before training",
        types=("ValueError", "KeyError", "TypeError", "AttributeError", "AssertionError", "IndexError"),
        frames=r":(?:__init__|__new__|setup|initialize|configure\w*)$",
        before_training=True,
        specificity=1,
        fixes=(FIX_SETTING, FIX_CODE),
        examples=('  File "/v/torch/optim/lr_scheduler.py", line 20, in __init__\nValueError: Expected positive integer total_steps, but got 0',),
    ),
    ExceptionRule(
        id="exception/before-training",
        cls="config-error",
        kind="API misuse or setting",
        means="the program failed before its first training progress, outside data-loading code",
        types=("AttributeError", "TypeError", "KeyError", "ValueError", "AssertionError"),
        before_training=True,
        specificity=1,
        fixes=(FIX_CODE, FIX_SETTING),
        examples=("  File \"/w/train.py\", line 20, in main\n    model.fitt(x)\nAttributeError: 'Model' object has no attribute 'fitt'",),
    ),
    ExceptionRule(
        id="exception/evaluation-code",
        cls="config-error",
        kind="metric or callback code",
        means="a metric or callback of the program failed on what it was given",
        types=("KeyError", "TypeError", "AttributeError", "NameError", "ValueError", "IndexError", "AssertionError"),
        frames=EVALUATION_FRAMES,
        before_training=False,
        specificity=1,
        fixes=(FIX_CODE,),
        examples=("  File \"/w/train.py\", line 20, in compute_metrics\n    f1 = report['macro']\nKeyError: 'macro'",),
    ),
    ExceptionRule(
        id="exception/during-training",
        cls="data-pipeline",
        kind="batch that the code can't take",
        means="user code that had worked on earlier batches failed on this one, so the data is the likelier difference",
        types=("ValueError", "KeyError", "IndexError", "TypeError"),
        before_training=False,
        specificity=1,
        fixes=(LOOK_AT_SAMPLE, NAME_SAMPLE),
        examples=("  File \"/w/train.py\", line 88, in step\n    w = weights[batch['region']]\nKeyError: 'north'",),
    ),
    ExceptionRule(
        id="exception/missing-value",
        cls="data-pipeline",
        kind="missing value",
        means="a value was None after earlier batches had one",
        types=("AttributeError",),
        message=r"'NoneType' object has no attribute",
        before_training=False,
        specificity=1,
        fixes=(LOOK_AT_SAMPLE, NAME_SAMPLE),
        examples=("  File \"/w/train.py\", line 88, in step\n    t = batch.text.lower()\nAttributeError: 'NoneType' object has no attribute 'lower'",),
    ),
    ExceptionRule(
        id="exception/index-before-training",
        cls="data-pipeline",
        kind="index out of range",
        means="an index lay outside a list or array at the first batches",
        types=("IndexError",),
        before_training=True,
        specificity=1,
        fixes=(LOOK_AT_SAMPLE, FIX_CODE),
        examples=('  File "/w/train.py", line 20, in main\n    y = table[i]\nIndexError: index 7 is out of bounds for dimension 0 with size 7',),
    ),
)
