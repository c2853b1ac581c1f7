#!/bin/bash -eu
# One executable per target of tests/fuzz/harness.py, with its seeds.
pip3 install . "fastapi>=0.115" "python-multipart>=0.0.18" "uvicorn>=0.30" "prometheus-client>=0.20" "httpx>=0.27"
for target in labels captions journals xmp requests; do
  printf 'import sys\nsys.argv[1:1] = ["%s"]\nfrom tests.fuzz.harness import main\nmain()\n' "$target" >"${target}_fuzzer.py"
  compile_python_fuzzer "${target}_fuzzer.py" --add-data src/mltta/assets:mltta/assets --hidden-import tests.fuzz.harness
  python3 -c "import sys; from pathlib import Path; from tests.fuzz.harness import corpus; corpus(sys.argv[1], Path(sys.argv[2]))" \
    "$target" "/tmp/$target"
  (cd "/tmp/$target" && zip -q "$OUT/${target}_fuzzer_seed_corpus.zip" ./*)
done
