# The app as a Docker Space or on any host: no GPU needed, user 1000, port 7860.
#
# A tag can be moved, a digest cannot. Look the digest up once, then build with it:
#   docker buildx imagetools inspect python:3.11-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg PYTHON_IMAGE=python:3.11-slim@sha256:<digest> .
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE}

# A CPU-only torch makes the image far smaller where an index of such wheels is at hand:
#   docker build --build-arg TORCH_INDEX="--index-url <index of CPU wheels>" .
ARG TORCH_INDEX=""

RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /home/user/app
ENV HOME=/home/user PATH=/home/user/.local/bin:$PATH PYTHONUNBUFFERED=1 GRADIO_ANALYTICS_ENABLED=False

# The lock first: what torch needs is then there with its hashes, and only torch itself comes from TORCH_INDEX.
COPY --chown=user requirements.txt requirements.lock constraints.txt ./
RUN pip install --no-cache-dir --user --no-deps -r requirements.lock \
 && pip install --no-cache-dir --user ${TORCH_INDEX} "$(grep '^torch==' requirements.txt)" -c constraints.txt

COPY --chown=user . .
EXPOSE 7860
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
  CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/readyz', timeout=4)"
CMD ["python", "-m", "app", "--host", "0.0.0.0", "--port", "7860"]
