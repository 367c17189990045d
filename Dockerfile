# The app as a Docker Space or on any host: no GPU needed, user 1000, port 7860.
FROM python:3.11-slim

# A CPU-only torch makes the image far smaller where an index of such wheels is at hand:
#   docker build --build-arg TORCH_INDEX="--index-url <index of CPU wheels>" .
ARG TORCH_INDEX=""

RUN useradd --create-home --uid 1000 user
USER user
WORKDIR /home/user/app
ENV HOME=/home/user PATH=/home/user/.local/bin:$PATH PYTHONUNBUFFERED=1 GRADIO_ANALYTICS_ENABLED=False

COPY --chown=user requirements.txt constraints.txt ./
RUN pip install --no-cache-dir --user ${TORCH_INDEX} "$(grep '^torch==' requirements.txt)" \
 && pip install --no-cache-dir --user -r requirements.txt -c constraints.txt \
 && pip install --no-cache-dir --user --no-deps "pillow>=13,<14"

COPY --chown=user . .
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
  CMD python -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/', timeout=4)"
CMD ["python", "-m", "app", "--host", "0.0.0.0", "--port", "7860"]
