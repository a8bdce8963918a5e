"""The commands after training. Their help imports neither torch nor numpy."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from partrain.cli.options import Checkpoint, Debug, Force, JobOverride, Json, Newest, Output, RequiredOutput, TrustCode
from partrain.cli.shared import examples, print_note, print_warning
from partrain.errors import InputMissing, NotTrusted
from partrain.inference.open import Use, load_job, open_checkpoint
from partrain.inference.output import document
from partrain.number_format import counted

if TYPE_CHECKING:
    from partrain.checkpoint import Content
    from partrain.flat import Layout
    from partrain.inference.generate import GeneratedText
    from partrain.inference.inputs.sample import Sample
    from partrain.inference.network import TrainedNetwork
    from partrain.inference.predict import Answers

app = typer.Typer()

Input = Annotated[
    Path | None,
    typer.Option(
        "--input", "-i", metavar="F", help="File or folder of items: any that a job takes, JSON lines, an image; - is stdin."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="With --input: leave out rows that cannot be read, and report the first.")
]
Split = Literal["training", "validation", "test"]
Format = Literal["safetensors", "state-dict", "torch-export", "onnx"]
InputType = Literal["uint8", "float64"]
WordForm = Literal["text", "codes"]
DIFFERENT = 1


@app.command(epilog=examples("partrain inspect runs/mnist"))
def inspect(
    checkpoint: Checkpoint,
    *,
    tensors: Annotated[
        bool,
        typer.Option(
            "--tensors", help="Show all tensors as a tree: type, shape, L2 norm, largest magnitude, non-finite numbers."
        ),
    ] = False,
    newest: Newest = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the content of a checkpoint. It runs no code that the checkpoint names."""
    from partrain.checkpoint.describe import describe
    from partrain.inference import tree

    path, content = open_checkpoint(checkpoint, print_note, newest=newest)
    if tensors:
        _show(answer := tree.tree(content), tree.render(answer), as_json=as_json)
    else:
        answer = {"file": str(path), "file_bytes": path.stat().st_size, **describe(content)}
        sizes = {"file_bytes": f"{answer['file_bytes']:,}", "bytes": f"{answer['bytes']:,}, in the arrays"}
        _show(answer, tree.render_outline(answer | sizes), as_json=as_json)


@app.command(epilog=examples("partrain evaluate runs/mnist", "partrain evaluate runs/wine --input new.csv"))
def evaluate(
    checkpoint: Checkpoint,
    split: Annotated[
        Split | None, typer.Option("--split", help="Items of the job's data set; default: validation and test.")
    ] = None,
    source: Input = None,
    targets: Annotated[
        Path | None, typer.Option("--targets", metavar="F", help="With --input: NPY or IDX file of the targets.")
    ] = None,
    *,
    by_group: Annotated[
        bool,
        typer.Option(
            "--by-group", help="Also evaluate on each group of [dataset] group: mean, median, worst tenth and worst group."
        ),
    ] = False,
    fine_tune: Annotated[
        int,
        typer.Option(
            "--fine-tune",
            metavar="PASSES",
            min=0,
            help="With --by-group: train on half of each group's items, then judge the other half before and after.",
        ),
    ] = 0,
    newest: Newest = False,
    skip_bad: SkipBad = False,
    trust_code: TrustCode = False,
    job: JobOverride = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Evaluate a checkpoint's network on its data set or on a file: loss, and metrics by class, number, token or item."""
    if split and source:
        raise typer.BadParameter("--split selects items of the checkpoint's data set; omit it with --input", param_hint="--split")
    if targets and not source:
        raise typer.BadParameter("only with --input", param_hint="--targets")
    if skip_bad and (targets or not source):
        raise typer.BadParameter("only with --input, and without --targets: both would no longer match", param_hint="--skip-bad")
    if fine_tune and not by_group:
        raise typer.BadParameter(
            "only with --by-group: a copy of the network is fine-tuned for each group", param_hint="--fine-tune"
        )
    path, content, network = _restored(
        checkpoint, newest=newest, trusted=trust_code, own=job, use="items" if source is None else "network"
    )
    from partrain.inference import evaluate as judging
    from partrain.inference.by_group import group_column

    left_out: dict[str, Any] = {}
    if source is None:
        results = judging.evaluate(network, content, split, by_group=by_group, fine_tune=fine_tune)
        if not results:
            raise InputMissing("the data set has no held-out and no test items; give --input FILE, or --split training")
    else:
        from partrain.inference.inputs.kinds import STDIN
        from partrain.inference.inputs.read import read

        sample = read(
            network, source, targets, labeled=True, skip_bad=skip_bad, group=group_column(network) if by_group else None
        )
        judged = judging.evaluate_sample(network, sample, by_group=by_group, fine_tune=fine_tune)
        results = {STDIN if str(source) == "-" else str(source): judged}
        left_out = _report(sample)
    _show({"checkpoint": str(path), "round": content.round, **results, **left_out}, judging.render(results), as_json=as_json)


@app.command(
    epilog=examples(
        "partrain predict runs/wine --input new.csv -o answers.csv",
        "partrain predict runs/wine --input new.csv --id name --top 2",
        'partrain predict runs/text --prompt "To be"',
    )
)
def predict(
    checkpoint: Checkpoint,
    source: Input = None,
    output: Output = None,
    *,
    force: Force = False,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Write this column of the table instead of item numbers.")
    ] = None,
    with_input: Annotated[bool, typer.Option("--with-input", help="Write all columns of the table before the answers.")] = False,
    skip_bad: SkipBad = False,
    top: Annotated[
        int, typer.Option("--top", metavar="K", min=0, help="Write the K likeliest classes, each with its probability.")
    ] = 0,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Write the probability of each class or label.")] = False,
    encode: Annotated[bool, typer.Option("--encode", help="Write the codes of an autoencoder instead of its errors.")] = False,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Text to continue, for a language network.")
    ] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", min=1, help="With --prompt: tokens to add; default: 200.")] = None,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0, help="With --prompt: 0 picks the likeliest token, 1 (default) samples."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="With --prompt: seed of the sampling; default: 0.")] = None,
    newest: Newest = False,
    trust_code: TrustCode = False,
    job: JobOverride = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict the items of a file, or continue a text. Answers go to stdout, or to a CSV, NPZ or JSON file."""
    if (source is None) == (prompt is None):
        raise typer.BadParameter("give either --input F, or --prompt TEXT", param_hint="--input")
    if prompt is None and (tokens, temperature, seed) != (None, None, None):
        raise typer.BadParameter("--tokens, --temperature and --seed belong to --prompt", param_hint="--input")
    for option, setting in {"--id": id_column, "--with-input": with_input, "--skip-bad": skip_bad, "--top": top,
                          "--probabilities": probabilities, "--encode": encode}.items():  # fmt: skip
        if prompt is not None and setting:
            raise typer.BadParameter("it belongs to --input", param_hint=option)
    if id_column is not None and with_input:
        raise typer.BadParameter("--with-input carries every column: leave --id out", param_hint="--id")
    from partrain.inference.output import ANSWERS, TEXT, check, create

    if output is not None:
        formats = TEXT if source is None else ANSWERS
        if output.suffix.lower() not in formats:
            raise typer.BadParameter(f"{output}: the suffix says the format: {', '.join(formats)}", param_hint="--output")
        check(output, force=force)
    path, content, network = _restored(checkpoint, newest=newest, trusted=trust_code, own=job)
    answers: GeneratedText | Answers
    left_out: dict[str, Any] = {}
    if source is None:
        from partrain.inference.generate import generate

        temperature = 1.0 if temperature is None else temperature
        answers = generate(network, prompt or "", tokens or 200, temperature, seed or 0)
    else:
        from partrain.inference.inputs.read import read
        from partrain.inference.predict import predict as answer

        sample = read(network, source, id_column=id_column, with_input=with_input, skip_bad=skip_bad)
        answers = answer(network, sample, probabilities=probabilities, encode=encode, top=top)
        left_out = _report(sample)
    if output is not None:
        create(output, answers.encode(output.suffix.lower()), force=force)
        _show({"output": str(output), **left_out}, [f"{output}: {answers.summary}"], as_json=as_json)
    elif as_json:
        print(document({"checkpoint": str(path), "round": content.round, **answers.document(), **left_out}))
    else:
        print(answers.text())


@app.command(
    epilog=examples(
        "partrain export runs/mnist --format onnx -o mnist.onnx",
        "partrain export runs/wine -f onnx -o wine.onnx --with-preprocessing --card",
    )
)
def export(
    checkpoint: Checkpoint,
    file_format: Annotated[Format, typer.Option("--format", "-f", help="Format: safetensors, state-dict, torch-export or onnx.")],
    output: RequiredOutput,
    *,
    with_preprocessing: Annotated[
        bool,
        typer.Option(
            "--with-preprocessing",
            help="Put the preprocessing into the file: raw values in, answers of `predict` out (onnx, torch-export).",
        ),
    ] = False,
    input_type: Annotated[
        InputType | None,
        typer.Option("--input-type", help="With --with-preprocessing: uint8 (bytes of images) or float64; default: as trained."),
    ] = None,
    words: Annotated[
        WordForm | None,
        typer.Option(
            "--words",
            help="With --with-preprocessing, onnx: words as text, or as codes for runtimes without text; default: text.",
        ),
    ] = None,
    card: Annotated[
        bool, typer.Option("--card", help="Write a model card next to the file: its name with the suffix .md.")
    ] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", metavar="NAME", help="With --fine-tune: export a network for this group of [dataset] group."),
    ] = None,
    fine_tune: Annotated[
        int,
        typer.Option("--fine-tune", metavar="PASSES", min=0, help="With --group: train a copy on all items of the group first."),
    ] = 0,
    force: Force = False,
    newest: Newest = False,
    trust_code: TrustCode = False,
    job: JobOverride = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Export a checkpoint's network to a format of other programs, and compare the answers of both."""
    from partrain.inference.output import check, create

    if (group is None) != (fine_tune == 0):
        raise typer.BadParameter("give --group NAME and --fine-tune PASSES together", param_hint="--group")
    if group is not None and card:
        raise typer.BadParameter("the card describes the network of all groups; leave it out with --group", param_hint="--card")

    check(output, force=force)
    beside = output.with_suffix(".md")
    if card and beside == output:
        raise typer.BadParameter(f"{output}: the model card takes this name; choose another suffix", param_hint="--output")
    if card:
        check(beside, force=force)
    for option, value in (("--input-type", input_type), ("--words", words)):
        if value and not with_preprocessing:
            raise typer.BadParameter("only with --with-preprocessing", param_hint=option)
    use: Use = "network" if group is None else "items"
    path, content, network = _restored(checkpoint, newest=newest, trusted=trust_code, own=job, use=use)
    from partrain.inference.deliver import deliver

    tuned = ""
    if group is not None:
        from partrain.inference.fine_tune import fine_tune as train

        items = train(network, content, group, fine_tune)
        tuned = f"fine-tuned for `{group}` on {counted(items, 'item')}"
    made = deliver(network, file_format, output, with_preprocessing=with_preprocessing, dtype=input_type, words=words)
    create(output, made.data, force=force)
    if card:
        from partrain.inference.card import card as describe

        create(beside, describe(network, content, path, made).encode(), force=force)
    facts = {"output": str(output), "format": file_format, "bytes": len(made.data), **made.verified, "facts": made.facts}
    facts |= {"card": str(beside)} if card else {}
    facts |= {"group": group, "fine_tuned_items": items} if group is not None else {}
    lines = [*([tuned] if tuned else []), made.compared, made.usage, *([f"{beside}: the model card"] if card else [])]
    _show(facts, lines, as_json=as_json)


@app.command(epilog=examples("partrain diff runs/one runs/other", "partrain diff runs/mnist --workers"))
def diff(
    checkpoint: Checkpoint,
    other: Annotated[Path | None, typer.Argument(metavar="[OTHER.h5]", help="The checkpoint to compare with.")] = None,
    *,
    workers: Annotated[bool, typer.Option("--workers", help="Compare the workers of the one checkpoint instead.")] = False,
    newest: Newest = False,
    trust_code: TrustCode = False,
    job: JobOverride = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare two networks tensor by tensor, or the workers of one checkpoint; exit 0 if all bits are equal, else 1."""
    if workers == (other is not None):
        raise typer.BadParameter("give either another checkpoint, or --workers", param_hint="OTHER.h5")
    from partrain.inference import diff as distances

    path, content = open_checkpoint(checkpoint, print_note, newest=newest)
    if other is not None:
        result = distances.networks(content, open_checkpoint(other, print_note, newest=newest)[1])
        _show(result, distances.render_networks(result), as_json=as_json)
    else:
        result = distances.replicas(content, _layout(path, content, trusted=trust_code, own=job))
        _show(result, distances.render_replicas(result), as_json=as_json)
    if not result["equal"]:
        raise typer.Exit(DIFFERENT)


@app.command(epilog=examples("partrain soup runs/one runs/other -o soup.h5"))
def soup(
    checkpoints: Annotated[list[Path], typer.Argument(metavar="CKPT.h5...", help="Checkpoints of the same network.")],
    output: RequiredOutput,
    *,
    force: Force = False,
    newest: Newest = False,
    trust_code: TrustCode = False,
    job: JobOverride = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Average the networks of several checkpoints into a new one, and evaluate it next to them."""
    from partrain.inference.output import check, create

    if output.suffix.lower() != ".h5":
        raise typer.BadParameter(f"{output}: a soup is a checkpoint, *.h5; `export` converts it", param_hint="--output")
    check(output, force=force)
    files = [open_checkpoint(path, print_note, newest=newest) for path in checkpoints]
    jobs = [load_job(content, path, trusted=trust_code, use="items", job_file=job) for path, content in files]
    from partrain.checkpoint import encode
    from partrain.inference import soup as kitchen

    members = [kitchen.Member(*file, loaded) for file, loaded in zip(files, jobs, strict=True)]
    mixed = kitchen.checkpoint_of(kitchen.mix(members), members[0].content)
    rows = kitchen.scores(mixed, members)
    create(output, encode(mixed), force=force)
    lines = [*kitchen.render(rows), "", f"{output}: the average of {len(members)} networks, for evaluate, predict and export"]
    _show({"output": str(output), "networks": rows}, lines, as_json=as_json)


def _report(sample: Sample) -> dict[str, Any]:
    """Report on stderr unusual columns, the number of rows left out and the first fault.

    Return the latter two as JSON content.
    """
    for remark in sample.remarks:
        print_warning(remark)
    faults = sample.skipped
    if not faults:
        return {}
    print_note(f"{len(faults):,} row{'s' * (len(faults) > 1)} left out; the first: {faults[0]}")
    return {"skipped": {"rows": len(faults), "first": faults[0]}}


def _restored(
    checkpoint: Path, *, newest: bool, trusted: bool, own: Path | None, use: Use = "network"
) -> tuple[Path, Content, TrainedNetwork]:
    path, content = open_checkpoint(checkpoint, print_note, newest=newest)
    loaded = load_job(content, path, trusted=trusted, use=use, job_file=own)
    from partrain.inference.network import load_network

    return path, content, load_network(loaded, content)


def _layout(path: Path, content: Content, *, trusted: bool, own: Path | None) -> Layout | None:
    """Return the layout of a worker's row, if the network is built in or trusted."""
    try:
        loaded = load_job(content, path, trusted=trusted, job_file=own)
    except NotTrusted:
        print(
            f"partrain: {path} names user code: without --trust-code, a worker's parameters are compared as one vector",
            file=sys.stderr,
        )
        return None
    from partrain.flat import Layout, trainable
    from partrain.inference.network import build_network

    parameters = trainable(build_network(loaded, content))
    return Layout.of(parameters, parameters[0][1].dtype)


def _show(content: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """Print one JSON document, or lines for people."""
    print(document(content) if as_json else "\n".join(lines))
