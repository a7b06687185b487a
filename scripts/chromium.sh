#!/usr/bin/env bash
# Debian's chromium for the tests that drive the page; where it cannot be installed, say what is left out.
set -euo pipefail

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing chromium for the browser tests"
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        chromium fonts-liberation >/dev/null; then
        exit 0
    fi
fi
without="will be skipped"
if [[ ${CI:-} == 1 || ${CI:-} == true ]]; then without="will fail, since this is a build server (CI=$CI)"; fi
echo "No chromium on the PATH: the browser tests $without. On Debian: sudo apt-get install chromium" >&2
