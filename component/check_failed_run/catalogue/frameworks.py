"""How a log shows which framework ran: texts that only that framework prints, the most specific first."""

from __future__ import annotations

FRAMEWORKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("megatron", ("megatron/", "Megatron-LM", "megatron.core", "tensor-model-parallel", "tensor_model_parallel", "consumed samples:")),
    ("nemo", ("[NeMo ", "nemo.collections", "nemo_logging", "NeMo-Aligner", "nemo/")),
    ("torchtitan", ("torchtitan",)),
    ("torchtune", ("torchtune",)),
    ("axolotl", ("axolotl",)),
    ("llamafactory", ("llamafactory", "LLaMA-Factory", "llamafactory-cli")),
    ("ms-swift", ("swift/llm", "swift sft", "ms-swift", "[INFO:swift]")),
    ("trl", ("/trl/", "SFTTrainer", "GRPOTrainer", "DPOTrainer", "trl.trainer", "reward_std", "rewards/")),
    ("deepspeed", ("[deepspeed]", "deepspeed/runtime", "DeepSpeed info", "deepspeed.runtime", "ds_config", "DeepSpeedEngine", "[launch.py:", "DeepSpeed Op", "zero_optimization", "ds_accelerator")),
    ("lightning", ("lightning_logs", "pytorch_lightning", "lightning.pytorch", "lightning/pytorch", "Trainer.fit` stopped", "GPU available:", "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES")),
    ("fsdp", ("FullyShardedDataParallel", "fully_sharded_data_parallel", "_fsdp", "FSDP(", "fsdp_")),
    ("diffusers", ("diffusers",)),
    ("huggingface", ("transformers/trainer.py", "***** Running training *****", "TrainingArguments", "trainer.py:", "transformers/", "'train_runtime'", "'eval_runtime'", "datasets/arrow", "Trainer.tokenizer")),
    ("accelerate", ("accelerate/", "accelerate launch", "accelerate.accelerator")),
    ("composer", ("composer/", "mosaicml", "[batch=")),
    ("fairseq", ("fairseq", "train_inner |", "num_updates")),
    ("mmsegmentation", ("mmseg",)),
    ("mmdet", ("mmdet",)),
    ("mmengine", ("mmengine", "mmcv")),
    ("detectron2", ("detectron2", "d2.engine", "d2.utils")),
    ("ultralytics", ("Ultralytics", "ultralytics")),
    ("timm", ("timm/", "Acc@1:", "timm.")),
    ("speechbrain", ("speechbrain",)),
    ("espnet", ("espnet",)),
    ("ignite", ("ignite/", "ignite.engine", "Engine run")),
    ("stable-baselines3", ("stable_baselines3", "rollout/", "ep_rew_mean")),
    ("spacy", ("spacy", "[+] Initialized pipeline", "✔ Initialized pipeline")),
    ("paddlepaddle", ("paddle", "ppocr")),
    ("catboost", ("catboost", "CatBoost")),
    ("lightgbm", ("[LightGBM]", "lightgbm")),
    ("xgboost", ("xgboost", "XGBoost", "train-logloss", "train-rmse", "eval-logloss", "train-auc", "-mlogloss:")),
    ("sklearn", ("sklearn/", "sklearn.", "scikit-learn")),
    ("jax", ("jaxlib", "jax/", "jax._src", "MaxText", "maxtext", "flax/", "orbax", "xla_bridge", "XlaRuntimeError", "jax.errors", "JaxRuntimeError", "se_gpu_pjrt_client", "jax.distributed", "jax ")),
    ("keras", ("keras/src", "keras/engine", "━━━", "keras.", "[==", ".keras")),
    ("tensorflow", ("tensorflow/", "tensorflow.python", "tf.", "TF-TRT")),
    ("ray", ("RayTrainWorker", "TorchTrainer", "ray.train", "ray::", "TrainController")),
    ("pytorch", ("torch", "DataLoader", "NCCL", "torchrun", "CUDA error", "iter ")),
)

FRAMEWORK_WORDS = frozenset(name for name, _ in FRAMEWORKS)

# what --framework may say, and the families whose settings apply to it
CHOICES = ("pytorch", "lightning", "deepspeed", "fsdp", "tensorflow", "jax")
