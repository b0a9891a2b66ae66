"""One server, as scripts, manifests and YAML write its flags."""

DIRECT = "vllm serve facebook/opt-125m --max-model-len 512 --max-num-seqs 7 --kv-cache-dtype fp8"
FORMS = {
    "array": 'CMD=(\n  vllm serve facebook/opt-125m  # the model\n  --max-model-len 512\n'
    '  --max-num-seqs 7\n  --kv-cache-dtype fp8\n)\n"${CMD[@]}" > server.log 2>&1 &\n',
    "array of flags": "ARGS=(--max-model-len 512)\nARGS+=(--max-num-seqs 7 --kv-cache-dtype=fp8)\n"
    'vllm serve facebook/opt-125m "${ARGS[@]}"\n',
    "assignments": 'MODEL="facebook/opt-125m"; export LEN=512\nSEQS=${SEQS:-7}\n'
    'EXTRA="--kv-cache-dtype fp8"\nvllm serve $MODEL --max-model-len $LEN '
    "--max-num-seqs ${SEQS} $EXTRA\n",
    "a function that is called": "run() {\n  { set +x; } 2>/dev/null\n  local name=$1\n  shift\n"
    '  echo "$@"; "$@" --max-model-len 512 > "$name.log" &\n}\nserve() {\n'
    '  local cmd=(vllm serve "$1")\n  run log "${cmd[@]}" --max-num-seqs $2 --kv-cache-dtype fp8\n'
    "}\nserve facebook/opt-125m 7\n",
    "computed values": "declare -A SEQS=([a:1]=7 [b]=9)\nM=/models/facebook/opt-125m.bin\nTP=1\n"
    "D=FP8_X\nD=${D,,}\nvllm serve facebook/$(basename ${M%.bin}) --kv-cache-dtype ${D%_*}"
    " --max-model-len $(( TP > 1 ? 9 : 500 + $(seq 12 12) )) --max-num-seqs ${SEQS[a:${TP}]}\n",
    "flags below without backslashes": "I run\n\nvllm serve facebook/opt-125m\n"
    "    --max-model-len 512\n"
    "    --max-num-seqs 7 \\  # few\n    --kv-cache-dtype fp8\n\nand wait\n",
    "a program in a variable": '#!/bin/bash\n# GPU blocks: 5\n'
    'pkill -f "vllm serve x --max-num-seqs 9"\n'
    'ssh a "[ -f /bin/vllm ]"\nlog_info "vllm serve: see the log"\n${VLLM} serve facebook/opt-125m '
    "--max-model-len 512 --max-num-seqs 7 --kv-cache-dtype fp8\n",
    "defaults": "vllm serve ${MODEL:-facebook/opt-125m} --max-model-len ${LEN:=512} "
    '--max-num-seqs "${SEQS:-7}" --kv-cache-dtype ${A:-${B:-fp8}}\n',
    "nested shell": f"docker run --gpus all -e LEN=5 img bash -c '{DIRECT}'\n",
    "after a here-document": f"cat > a.txt <<'EOF'\nvllm serve an/other\nEOF\n{DIRECT}\n",
    "prose around it": f"It's what I run:\n\n    {DIRECT}\n\nand it doesn't start.\n",
    "compose": "services:\n  vllm:\n    image: vllm/vllm-openai:v0.19.1\n    command: >\n"
    "      --model ${MODEL:-facebook/opt-125m} --max-model-len ${LEN:-512}\n"
    "      --max-num-seqs 7 --kv-cache-dtype fp8\n",
    "compose with anchors": "x-args: &args\n  - --max-model-len=512\n  - --max-num-seqs\n  - '7'\n"
    "  - --kv-cache-dtype=fp8\n  - --model\n  - facebook/opt-125m\nservices:\n  vllm:\n"
    "    image: vllm/vllm-openai:v0.19.1\n    command: *args\n",
    "compose with a script": "services:\n  vllm:\n    image: vllm/vllm-openai:v0.19.1\n"
    "    entrypoint: [/bin/bash, -c]\n    command:\n    - |\n      set -e\n"
    "      exec vllm serve facebook/opt-125m --max-model-len 512 \\\n"
    "        --max-num-seqs 7 \\\n        --kv-cache-dtype fp8\n",
    "kubernetes": "spec:\n  containers:\n  - name: vllm\n    image: vllm/vllm-openai:v0.19.1\n"
    "    command: [vllm, serve]\n    args: [$(MODEL), --max-model-len=512, --max-num-seqs=7,\n"
    "      --kv-cache-dtype, fp8]\n    env:\n    - name: MODEL\n      value: facebook/opt-125m\n",
    "kubernetes with a script": "spec:\n  containers:\n  - name: vllm\n    image: ubuntu\n"
    "    command: [/bin/sh, -c]\n    args:\n    - 'vllm serve $MODEL --max-model-len 512\n"
    "      --max-num-seqs 7 --kv-cache-dtype fp8'\n    env:\n    - name: MODEL\n"
    "      value: facebook/opt-125m\n",
    "a file of --config": "model: facebook/opt-125m\nmax-model-len: 512\nmax_num_seqs: 7\n"
    "kv-cache-dtype: fp8\n",
    "helm": "servingEngineSpec:\n  modelSpec:\n  - name: a\n    modelURL: facebook/opt-125m\n"
    "    vllmConfig:\n      maxModelLen: 512\n      maxNumSeqs: 7\n"
    "      extraArgs: [--kv-cache-dtype, fp8]\n",
}  # fmt: skip
