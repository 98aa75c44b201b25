# One image for every part: `up` (all of an instance), or `shift` for more hands elsewhere.
# Built from the project's folder: docker build -t paperclip .
FROM python:3.13-slim AS build
WORKDIR /srv/paperclip
COPY requirements.txt ./
RUN python -m venv .venv \
 && .venv/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.txt

FROM python:3.13-slim
# Git for workspaces; an init, because a stop must reach the parent only.
RUN apt-get update \
 && apt-get install -y --no-install-recommends git tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 paperclip \
 && install -d -o paperclip -g paperclip -m 0700 /data
WORKDIR /srv/paperclip
COPY --from=build /srv/paperclip/.venv .venv
COPY . .
ENV PATH=/srv/paperclip/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PAPERCLIP_HOST=0.0.0.0 \
    PAPERCLIP_DATA_DIR=/data \
    PAPERCLIP_STATIC_ROOT=/data/static
USER paperclip
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/api/health/ready', timeout=2)"]
# Not `tini -g`: signals are for the parent alone.
ENTRYPOINT ["tini", "--", "python", "manage.py"]
CMD ["up"]
