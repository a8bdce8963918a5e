"""Example values of keys, for `partrain explain`."""

from __future__ import annotations

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from partrain.config.section import Section

EXAMPLES: dict[str, Any] = {
    "name": "mnist",
    "seed": 1,
    "[model] name": "net.py:Net",
    "[model] from": "runs/mnist",
    "[model] except": ["head.*"],
    "[model] freeze": ["conv1.*"],
    "[model] rename": {"encoder.": "backbone."},
    "[model] weights": "IMAGENET1K_V1",
    "[model] sha256": "0123456789abcdef" * 4,
    "[model] init_range": 0.1,
    "[model] hidden": [256, 128],
    "[model] channels": [16, 32, 64],
    "[model] output_key": "logits",
    "[dataset] name": "data.py:Data",
    "[dataset] fold": "1/5",
    "[dataset] classes": [0, 1],
    "[dataset] validation": 1000,
    "[dataset] test_items": 500,
    "[dataset] test_share": 0.15,
    "[dataset] inputs": "inputs.npy",
    "[dataset] csv inputs": ["rooms", "city"],
    "[dataset] parquet inputs": ["rooms", "city"],
    "[dataset] table inputs": ["rooms", "city"],
    "[dataset] npz inputs": ["image", "meta"],
    "[dataset] hdf5 inputs": ["image", "meta"],
    "[dataset] huggingface inputs": ["image"],
    "[dataset] targets": "targets.npy",
    "[dataset] npz targets": "labels",
    "[dataset] hdf5 targets": "labels",
    "[dataset] test_inputs": "test_inputs.npy",
    "[dataset] npz test_inputs": ["test_image", "test_meta"],
    "[dataset] hdf5 test_inputs": ["test_image", "test_meta"],
    "[dataset] test_targets": "test_targets.npy",
    "[dataset] npz test_targets": "test_labels",
    "[dataset] hdf5 test_targets": "test_labels",
    "[dataset] path": "data.csv",
    "[dataset] parquet path": "data.parquet",
    "[dataset] table path": "data.xlsx",
    "[dataset] npz path": "items.npz",
    "[dataset] hdf5 path": "items.h5",
    "[dataset] mapped path": "items.ptitems",
    "[dataset] text path": "text.txt",
    "[dataset] images path": "photos",
    "[dataset] huggingface path": "saved",
    "[dataset] test_path": "test.csv",
    "[dataset] validation_path": "validation.csv",
    "[dataset] parquet validation_path": "validation.parquet",
    "[dataset] group": "person",
    "[dataset] parquet test_path": "test.parquet",
    "[dataset] text test_path": "test.txt",
    "[dataset] images test_path": "test-photos",
    "[dataset] images validation_path": "validation-photos",
    "[dataset] target": "price",
    "[dataset] huggingface target": "label",
    "[dataset] drop": ["id"],
    "[dataset] one_hot": ["city"],
    "[dataset] categories": ["city", "street"],
    "[dataset] dates": ["sold"],
    "[dataset] texts": ["review"],
    "[dataset] logs": ["concentration"],
    "[dataset] missing_indicator": ["size"],
    "[dataset] sample_weight": "households",
    "[dataset] separator": ";",
    "[dataset] null_values": ["k.A.", "-"],
    "[dataset] number_marks": "€%",
    "[dataset] text": "body",
    "[dataset] date_format": ["%d.%m.%Y", "%b %Y"],
    "[dataset] thousands": ".",
    "[dataset] length": 64,
    "[dataset] stride": 32,
    "[dataset] window": 24,
    "[dataset] columns": ["load", "temperature"],
    "[dataset] difference": [1, 12],
    "[dataset] season": 12,
    "[dataset] time": "month",
    "[dataset] size": [32, 32],
    "[dataset] test_split": "test",
    "[dataset] channels": 1,
    "[dataset] augment": ["crop", "flip"],
    "[dataset] mean": [0.485, 0.456, 0.406],
    "[dataset] deviation": [0.229, 0.224, 0.225],
    "[dataset] offsets": "offsets",
    "[dataset] test_offsets": "test_offsets",
    "[partition] overlap": 0.2,
    "[partition] alpha": 0.5,
    "[task] name": "task.py:Task",
    "[task] metrics": ["f1", "auroc"],
    "[task] lower_is_better": ["cost"],
    "[task] threshold": 0.4,
    "[task] ignore_index": 0,
    "[task] class_weights": [1.0, 5.0],
    "[task] label_smoothing": 0.1,
    "[task] focal": 2.0,
    "[task] delta": 1.0,
    "[task] quantile": 0.9,
    "[optimizer] lr": 0.1,
    "[optimizer] warmup": 0.1,
    "[optimizer] lr_start": 0.0,
    "[optimizer] lr_end": 0.01,
    "[optimizer] every": 0.3,
    "[optimizer] horizon": 1_000_000,
    "[optimizer] clip_norm": 1.0,
    "[faults] max_update_norm": 10.0,
    "[optimizer] clip_value": 0.5,
    "[optimizer] weight_decay": 0.01,
    "[optimizer] momentum": 0.9,
    "[optimizer] adamw_lr": 0.001,
    "[optimizer] layer_decay": 0.8,
    "[optimizer] groups": [{"match": ["head.*"], "lr": 0.01}],
    "[sync] iterations": 10,
    "[sync] passes": 1,
    "[sync] warmup_rounds": 10,
    "[sync] ramp_workers": 20,
    "[sync] clients": 0.1,
    "[sync] client_sampling": "items",
    "[sync] noise": 1.0,
    "[sync] ema": 0.999,
    "[sync] beta1": 0.9,
    "[sync] swa": 0.75,
    "[sync] switch_round": 50,
    "[sync] alpha": 0.5,
    "[sync] bound": 4,
    "[sync] gamma": 0.5,
    "[sync] compressor": {"kind": "topk", "density": 0.01},
    "[sync] momentum": 0.5,
    "[[workers]] count": 2,
    "[[workers]] device": "cuda:0",
    "[[workers]] replicas": 16,
    "[[workers]] cpus": "0-3",
    "[[workers]] batch_size": 512,
    "[[workers]] partition_size": 5000,
    "[[workers]] iterations": 20,
    "[[workers]] passes": 1,
    "[transport] speed": [1.0, 0.5],
    "[transport] delay": [0.01],
    "[transport] jitter": [0.2],
    "[partition] size_alpha": 1.0,
    "[partition] clients": 1000,
    "[transport] availability": [0.8],
    "[transport] network": {"bandwidth": 12.5e6, "latency": 0.02},
    "[stop] rounds": 200,
    "[stop] item_iterations": 1_000_000,
    "[stop] seconds": 600,
    "[faults] round_seconds": 2.0,
    "[partition] balance": "rate",
    "[stop] loss": 0.05,
    "[stop] accuracy": 0.97,
    "[stop] patience": 10,
    "[stop] patience_by": "loss",
    "[stop] at_least": {"f1": 0.9},
    "[stop] at_most": {"mae": 2.5},
    "[stop] judge_every": 5,
    "[checkpoint] keep": 5,
    "[hooks] after_judgement": "hooks.py:after_judgement",
    "[sweep] zip": {"optimizer.lr": [0.1, 0.2], "optimizer.batch_size": [64, 128]},
    "[sweep] seeds": 3,
    "[sweep] k_folds": 5,
    "[sweep] trials": 20,
    "[sweep] by": "metrics.accuracy",
}
"""Values by table and key, or by table, kind of the table and key. Other keys show a choice other than their default, or their
default."""


def example_of(table: str, key: str, field: FieldInfo, kind: str = "") -> Any:
    """Return a value that a user may give to a key; None if there is no example.

    `kind`: name of the table among its alternatives. A list of one is shown for list keys that also accept a single value.
    """
    value = EXAMPLES.get(f"{table} {kind} {key}", EXAMPLES.get(f"{table} {key}".strip()))
    parts, choices = get_args(field.annotation), _choices(field.annotation)
    if choices and value not in choices:
        others = [choice for choice in choices if choice != field.default]
        return others[0] if others else choices[0]
    listed = _is_list(field.annotation)
    if value is not None and listed != isinstance(value, list):
        value = [value] if listed and not isinstance(value, dict) else None if isinstance(value, list) else value
    if value is not None:
        return value
    if field.annotation is bool or bool in parts:
        return field.default is not True
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    return None if isinstance(value, Section) else value


def _choices(annotation: Any) -> list[Any]:
    options = [annotation, *get_args(annotation)] if get_origin(annotation) is not Literal else [annotation]
    return [value for option in options if get_origin(option) is Literal for value in get_args(option) if value is not NoneType]


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple) or (
        get_origin(annotation) is not dict and any(map(_is_list, get_args(annotation)))
    )
