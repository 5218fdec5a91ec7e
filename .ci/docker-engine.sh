#!/usr/bin/env bash
# A Docker engine and a Python base image on a Debian host, with nothing but a Debian mirror: no image registry is needed.
#
#   .ci/docker-engine.sh [BASE_TAG]      default BASE_TAG: python-base:bookworm
#
# 1. installs docker.io and debootstrap from the host's own Debian sources, where they are missing;
# 2. starts dockerd, where no engine answers (log: /var/tmp/dockerd.log);
# 3. builds BASE_TAG with debootstrap (Debian's python3, venv, pip; the host's CA bundle), where it is missing.
# About 90 seconds the first time and nothing afterwards. Needs root for 1 and 2.
set -euo pipefail
base="${1:-python-base:bookworm}"

need() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
missing=()
docker info >/dev/null 2>&1 || need dockerd || missing+=(docker.io iptables)
docker image inspect "$base" >/dev/null 2>&1 || need debootstrap || missing+=(debootstrap ca-certificates)
if [ "${#missing[@]}" -gt 0 ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! docker info >/dev/null 2>&1; then
  setsid "$(command -v dockerd || echo /usr/sbin/dockerd)" >/var/tmp/dockerd.log 2>&1 </dev/null &
  for _ in $(seq 120); do docker info >/dev/null 2>&1 && break; sleep 0.5; done
  docker info >/dev/null || { tail -20 /var/tmp/dockerd.log >&2; exit 1; }
fi

if ! docker image inspect "$base" >/dev/null 2>&1; then
  root="$(mktemp -d)"
  trap 'rm -rf "$root"' EXIT
  mirror="$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
    awk '/^URIs:/ {print $2} /^deb / {for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) print $i}' | grep -m1 -E '/debian/?$' || true)"
  "$(command -v debootstrap || echo /usr/sbin/debootstrap)" --variant=minbase \
    --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" ${mirror:+"$mirror"} >/var/tmp/debootstrap.log ||
    { tail -20 /var/tmp/debootstrap.log >&2; exit 1; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  tar -C "$root" -c . | docker import --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' - "$base" >/dev/null
fi
docker image inspect --format '{{.RepoTags}} {{.Size}}' "$base"
