#!/bin/sh
# Installs the agent CLIs that the `cli` tests drive, in exact versions, outside the repository.
#
# Usage: scripts/install_clis.sh [FOLDER]     default: ${XDG_CACHE_HOME:-~/.cache}/paperclip-clis
# Needs Node 20 or newer and npm; takes half a minute and 1.1 GB. A second call does nothing.
# Claude Code is proprietary software of its maker: it is installed here, never distributed.
set -eu

folder="${1:-${PAPERCLIP_CLIS_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/paperclip-clis}}"
pins="@anthropic-ai/claude-code@2.1.197 @openai/codex@0.171.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0"

command -v npm >/dev/null 2>&1 || { echo "npm is missing: install Node 20 or newer first." >&2; exit 1; }
if [ -f "$folder/pins" ] && [ "$(cat "$folder/pins")" = "$pins" ]; then
    echo "The CLIs are already in $folder."
    exit 0
fi
mkdir -p "$folder"
cd "$folder"
rm -f pins
[ -f package.json ] || echo '{"private": true}' >package.json
# One call for all would let npm choose other versions of shared parts; exact pins stay exact.
# shellcheck disable=SC2086
npm install --save-exact --no-audit --no-fund --loglevel=error $pins
echo "$pins" >pins
for name in claude codex opencode gemini; do
    printf '%-9s' "$name"
    "./node_modules/.bin/$name" --version 2>/dev/null | head -n 1
done
echo "Installed in $folder."
