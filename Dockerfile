# The quick start on CPUs: docker build -t creditrl . && docker run --rm creditrl
# --build-arg TORCH_INDEX=URL takes torch from an index with CPU builds, which saves gigabytes of CUDA.
FROM python:3.11-slim
ARG TORCH_INDEX
RUN pip install --no-cache-dir torch ${TORCH_INDEX:+--index-url ${TORCH_INDEX}}
COPY . /creditrl
RUN pip install --no-cache-dir "/creditrl[train]"
WORKDIR /work
ENTRYPOINT ["creditrl"]
CMD ["train", "@quickstart"]
