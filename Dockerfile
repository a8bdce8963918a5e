# An image of partrain: `docker build -t partrain .`, or by podman or buildah. docs/containers.md names the arguments.
ARG PYTHON=python:3.13-slim
FROM ${PYTHON} AS build
# The package index with torch's builds for the CPU, or for a version of CUDA; default: pip's own, whose torch for Linux brings CUDA.
ARG TORCH_INDEX=""
# Extras of pyproject.toml, as in "tune,onnx".
ARG EXTRAS=""
WORKDIR /source
RUN python3 -m venv /opt/partrain
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt ./
RUN /opt/partrain/bin/pip install -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY partrain partrain
RUN /opt/partrain/bin/pip install -c constraints.txt ".${EXTRAS:+[$EXTRAS]}"

FROM ${PYTHON}
# The C compiler, with which partrain compiles the training of small networks for the processor that runs the image.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/partrain /opt/partrain
ENV PATH=/opt/partrain/bin:$PATH
RUN useradd --create-home --uid 1000 trainer && install -d -o trainer /data
USER trainer
WORKDIR /data
ENTRYPOINT ["partrain"]
CMD ["--help"]
