/* Megatron-LM jobs as people's scripts have them: variables, arrays, branches, here-documents.
 * What is set in the text is put in its place; what only a shell could tell is refused by name. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

static int import(struct tn_imported *ret, const char *text, struct err *e)
{
    AUTO_JSON *v = json_string("llama-8b");
    struct pl_model m;

    if (pl_model_parse(&m, v, e) < 0)
        fail_msg("llama-8b: %s", e->text);
    return import_text(ret, "megatron", text, 32, &m, e);
}

static int import_called(struct tn_imported *ret, const char *text, const char *call, struct err *e)
{
    const struct tn_job job = {.source = "megatron", .text = text, .call = call, .world = 32};
    AUTO_JSON *v = json_string("llama-8b");
    struct pl_model m;

    if (pl_model_parse(&m, v, e) < 0)
        fail_msg("llama-8b: %s", e->text);
    return tn_import(ret, &job, &m, e);
}

/* Each says tp 4 and pp 2 in its own way, and nothing else of the layout. */
static void scripts_are_read_as_a_shell_would(void **state)
{
    static const char *const scripts[] = {
        "IFS=, read -r KIND REST <<< \"8b,4, 2,\"\nread -r TP PP MORE <<< \"${REST//,/ }\"\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP$MORE "
        "--pipeline-model-parallel-size $PP\n",
        "ARGS=\"--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\"\n"
        "torchrun pretrain_gpt.py $ARGS\n",
        "GPT_ARGS=\"\n    --tensor-model-parallel-size 4 \\\n    --pipeline-model-parallel-size 2 "
        "\\\n"
        "\"\n\npython -m torch.distributed.launch $DIST pretrain_gpt.py \\\n    $GPT_ARGS",
        "#!/bin/bash\nTP=4 # tensor\nPP=2\nARGS=(\n    --tensor-model-parallel-size $TP # first\n"
        "    # --micro-batch-size 3\n\t--pipeline-model-parallel-size ${PP}\n)\n"
        "torchrun ${DIST[@]} a/pretrain_gpt.py \\\n    ${ARGS[@]}\n",
        "TP=4; PP=$((TP / 2)); P=2\nexport ARGS=\"--tensor-model-parallel-size $TP\"\n"
        "ARGS=\"$ARGS --pipeline-model-parallel-size $P\"\nsrun sh -c \"python pretrain_gpt.py "
        "$ARGS\"",
        "declare -a A=(--tensor-model-parallel-size=4)\nA+=( --pipeline-model-parallel-size \"2\" "
        ")\n"
        "torchrun pretrain_gpt.py \"${A[@]}\" 2>&1\n",
        "A='--tensor-model-parallel-size 4'\nA+=' --pipeline-model-parallel-size 2'\n"
        "cmd=\"torchrun $X pretrain_gpt.py $A\"\necho \"running pretrain_gpt.py $A now\"\neval "
        "$cmd\n",
        "TP=${TP:-4}; PP=${2:-2}\n: \"${MORE:=--seed 1}\"\n"
        "python tools/preprocess.py --in x\n"
        "python \"$HERE\"/pretrain_gpt.py --tensor-model-parallel-size \"$TP\" \\\r\n"
        "  --pipeline-model-parallel-size $PP\r\nexit 0\r\n",
        "A='--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2'\n"
        "torchrun pretrain_gpt.py $A --save x --fsdp2-config-path $(cd ..; pwd)/x\n"
        "torchrun pretrain_gpt.py $A --load x\n",
        "C=tp=4,pp=2\nTP=$(echo $C | cut -d, -f1 | cut -d '=' -f 2)\n"
        "PP=`expr $(echo \"$TP * 3\" | bc) / $(echo \"x  6\" | awk '{print $2}')`\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "TP=1 i=0 L=(1 2)\nwhile ((i++ < 2)); do ((TP *= L[1])); done\n"
        "(( PP = 10#04 >> 1, i == 3 || (PP = 8) )); let PP--; : $((++PP))\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "declare -i TP=2 PP=1+1\nTP+=2\nf() { local -i PP=3*3; }\nf\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "for x in 1 2; do for TP in 3 4; do [ $((x * TP)) = 4 ] && break 2; done; TP=8; done\n"
        "for PP in 1 2 8; do for x in 1 2; do [ $PP = 1 ] && continue 2; break 2; done; done\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "N=8\nTP=$((1 + 3 * (N > 4 && N != 9)))\ntorchrun pretrain_gpt.py "
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size $((1 + (N <= 8)))\n",
        "for i in 1 2; do\n    echo $i\ndone\nif [ -n \"$X\" ]; then\n    N=8\nfi\n"
        "run() {\n    date\n}\ncase $1 in\n    -h | --help) echo usage; exit ;;\n    --fast) F=1 "
        ";;\nesac\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size "
        "2\n",
        "cat >run.sh <<'END'\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 4 \\\n"
        "    --pipeline-model-parallel-size 2\nEND\nsbatch run.sh\n",
        "cat <<-END\n\tan apostrophe's here\n\tEND\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2",
        "MODEL=\"--num-layers 32\"\nPAR=\"--tensor-model-parallel-size 4\"\n"
        "ALL=\"$MODEL $PAR --pipeline-model-parallel-size 2\"\n", /* no command: what holds the rest
                                                                   */
        "TP=8\nTP=4\nset -- --pipeline-model-parallel-size 2\n"
        "exec torchrun pretrain_gpt.py --tensor-model-parallel-size $TP \"$@\"\n",
        "srun bash -c 'torchrun pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2'\n",
        "[[ $X == 1 ]] && LOG=\"--log-interval 5\"\n"
        "torchrun pretrain_gpt.py $LOG --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2 --save $(date +%s) --load `pwd`/x\n",
        "[ -f pretrain_gpt.py ] || exit 1\nls pretrain_gpt.py tools/train.py\n"
        "cp pretrain_gpt.py /tmp/pretrain_bert.py\ncat pretrain_gpt.py | grep seed\n"
        "python -c 'import x' pretrain_t5.py\nmkdir -p out/pretrain_gpt.py\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size "
        "2\n",
        "CMD=\"torchrun pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2\"\necho $CMD\necho \"$CMD\" > log\nprintf '%s' "
        "\"$CMD\"\neval \"$CMD\"\n",
        "A=\"--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\"\n"
        "if [ $X ]; then\n    srun python pretrain_gpt.py $A\nelse\n    python pretrain_gpt.py "
        "$A\nfi\n", /* the same either way */
        "export P='--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2'\n"
        "export L='python -m torch.distributed.run --nproc_per_node 8'\n"
        "srun --jobid 7 bash -lc '$L --node_rank $SLURM_PROCID pretrain_gpt.py $P' | tee log\n",
        "python train.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\n"
        "python eval.py --seed 1\n", /* only one is told of a layout */
        "N=2\nPP=$N\nTP=$((PP**N))\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $(( (TP*3 - 4) / (2*N) ))\n",
        "X='N * 2'; N=2\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $((X)) "
        "--pipeline-model-parallel-size $((${N} + -+-0))\n",
        "D=$(cd \"$(dirname \"$0\")\" && pwd)\ntorchrun $(dirname $D)/pretrain_gpt.py "
        "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\n",
        "f() {\n    local TP=8\n    PP=$1\n    [ \"$2\" ] || return\n    PP=16\n}\nTP=4\nf 2\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size "
        "$PP\n",
        "function start {\n    torchrun pretrain_gpt.py --tensor-model-parallel-size $1 "
        "\"${@:2}\"\n}\n"
        "start 4 --pipeline-model-parallel-size 2 2>&1 | tee log\n",
        "TP=1\nfor i in 1 2; do\n    TP=$((TP * 2))\ndone\nPP=64\nwhile (( PP > 2 )); do PP=$((PP "
        "/ 2)); "
        "done\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "ARGS=()\nfor pair in tensor=4 pipeline=2 context=0; do\n    [ ${pair#*=} = 0 ] && "
        "continue\n"
        "    ARGS+=(--${pair%%=*}-model-parallel-size ${pair#*=})\ndone\n"
        "torchrun pretrain_gpt.py \"${ARGS[@]}\"\n",
        "set -- --tp 4 --pp 2 --fast\nwhile [[ $# -gt 0 ]]; do\n    case $1 in\n"
        "        --tp) TP=$2; shift 2 ;;\n        --pp) PP=$2; shift 2 ;;\n        *) shift ;;\n"
        "    esac\ndone\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "TP=4\nPP=8 sh other.sh\nPP=2 TP=8 X=1 true && export X\nTP=2 TP=1 torchrun "
        "pretrain_gpt.py "
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP-2}\n",
        "read -r A TP <<< \"8 4\"\nread Z <<< ' '\nTP=$TP$Z\nIFS=,x read -ra ALL <<< 1,x2,3\nread "
        "PP B <<<2\n[ \"$B\" ] || "
        "[ ${#ALL[@]} != 4 ] || torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size ${ALL[2]}\n",
        "f() {\n    torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $1\n}\nTP=1 PP=2\nTP=4 f $PP\n",
        "NOTHING=\nTP=4 $NOTHING\nPP=2 : >log\ntorchrun pretrain_gpt.py "
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP:-2}\n",
        "TP=4 PP=2 bash -c 'torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP'\n",
        "TP=4\n( TP=8; exit 3 )\n{ TP=2; } | cat\nN=(a b)\ntorchrun pretrain_gpt.py "
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size ${#N[@]}\n",
        "#!/bin/bash\n#SBATCH --nodes=4  # of the cluster\n#SBATCH -n 2\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $SLURM_NNODES "
        "--pipeline-model-parallel-size ${SLURM_NTASKS:-1}\n",
        "python data.py --seed 1\npython data.py --seed 2\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size "
        "2\n",
        "N=8\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $((N > 4 ? 4 : 1)) "
        "--pipeline-model-parallel-size $((!N + 2))\n",
        "export SEED TP=4\nunset PP\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size ${PP-2}\n",
        "A=\"--tensor-model-parallel-size 4 --init 'x y' --pipeline-model-parallel-size 2\"\n"
        "CMD=\"torchrun pretrain_gpt.py $A &> log\"\neval ${CMD}\n",
        "eval \"TP=4; PP=\\$((TP / 2))\"\nfalse && eval 'TP=1; PP=1'\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size "
        "$PP\n",
        "CMD='python pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2'\nif [ $P ]; then\n    CMD=\"nsys profile -o p "
        "$CMD\"\nfi\n[ $L ] && CMD+=' --log-interval 1'\n$CMD\n",
        "for pair in TP=4 PP=2; do\n    export \"${pair%=*}\"=\"${pair#*=}\"\ndone\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size "
        "$PP\n",
        "TP=4 PP=2\nif [ $TP = 1 ]; then\n    for i in 1 2 3; do\n        while [ $TP = 4 ]; do "
        "until [ $TP = 1 ]; do TP=1; done; done\n    done\nfi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "TP=4 PP=2 L=() A=--x\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do\n"
        "    [ \"$Q\" ] && L=(\"${L[@]}\" --x)\n    [ \"$Q\" ] && set -- \"$@\" --x\ndone\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "K=8b TP=1 PP=2\n[ ! $K -eq 1 -o $TP = 1 ] || TP=4\n[[ PP -eq TP-2 ]] || PP=1\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "F=jobs/4/\"2\".sh/\nTP=$(basename $(dirname $F)) PP=$(basename \"$F\" .sh)\n"
        "[ $(dirname x)$(dirname /x)$(basename //)$(basename .sh .sh)$(dirname a//b) = .//.sha ] "
        "&& torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "ROW=(1 2)\nPP=${ROW[-1]} TP=${ROW[-3]:-4}${ROW[-3]}\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        "if [ \"$MOCK\" ]; then\n    DATA=(--mock-data)\nelse\n    DATA=(--data-path \"$P\")\nfi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 "
        "${DATA[@]}\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, scripts[i], &e) < 0)
            fail_msg("%s: %s", scripts[i], e.text);
        if (out.layout.tp != 4 || out.layout.pp != 2 || out.layout.micro_batch != 1)
            fail_msg("%s: tp %d, pp %d", scripts[i], out.layout.tp, out.layout.pp);
    }
}

/* Each is tp 4 and pp 2 as it is called. */
static void a_call_gives_variables_and_arguments(void **state)
{
    static const char run[] = "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
                              "--pipeline-model-parallel-size $PP\n";
    static const struct {
        const char *script, *call;
    } cases[] = {
        {"TP=$1\nPP=${2:?}\n", "bash job.sh 4 2"},
        {"TP=$1\nPP=${11}\n", "./job 4 a b c d e f g h i 2"},
        {"TP=${TP:-1}\n", "TP=4 PP=2 sbatch job.slurm"},
        {"PP=$SLURM_JOB_NUM_NODES\n#SBATCH --nodes=8\n", "sbatch -N 2 --export=ALL,TP=4 job.sh"},
        {"#SBATCH --nodes=8\nPP=$SLURM_NNODES\n", "TP=4 sbatch --nodes=2 job.sh"},
        {"PP=2\n[ $# = 0 ] && TP=4\n", "bash job.sh"},
        {"[ $# = 0 ] || IFS=x read -r -a LIST <<< 1x2\nTP=4 PP=$((${#LIST[@]} + 2))\n", "job.sh"},
        {"PP=2\n[ -z \"$TP\" ] && TP=$1\n[ $TP = 8 ] && M=--bf16\nPP=\"$PP $M\"\n", "job.sh 4"},
        {"[ $# -lt 1 ] && { echo usage; exit 1; }\nPP=2\nTP=$1\n", "job.sh '4'"},
        {"for a in \"$@\"; do\n    case $a in\n        --tp=*) TP=${a#*=} ;;\n"
         "        --pp=*) PP=${a#*=} ;;\n        *) exit 1 ;;\n    esac\ndone\n",
         "bash -x job.sh --tp=4 --pp=2"},
        {"while true; do\n    case $1 in\n        -t) TP=$2; shift 2 ;;\n        -p) PP=$2; shift "
         "2 ;;\n"
         "        *) break ;;\n    esac\ndone\n",
         "job.sh -t 4 -p 2"},
        {"while getopts \"t:vp:\" opt; do\n    case $opt in\n        t) TP=$OPTARG ;;\n        p) "
         "PP=$OPTARG ;;\n        v) V=1 ;;\n        *) exit 1 ;;\n    esac\ndone\nshift "
         "$((OPTIND - 1))\n[ $1$V = rest1 ] || PP=8\n",
         "job.sh -v -t4 -p 2 rest"},
        {"while getopts :t:p o; do\n    [ $o = t ] && TP=$OPTARG\n    [ $o$OPTARG = '?x' ] && "
         "PP=2\ndone\n",
         "job.sh -xt 4 -- -t 8"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_STR text = {0};
        struct tn_imported out;
        struct err e = {0};

        str_addf(&text, "%s%s", cases[i].script, run);
        if (import_called(&out, str_text(&text), cases[i].call, &e) < 0)
            fail_msg("%s: %s", str_text(&text), e.text);
        if (out.layout.tp != 4 || out.layout.pp != 2)
            fail_msg("%s: tp %d, pp %d", str_text(&text), out.layout.tp, out.layout.pp);
    }
}

static void a_call_that_names_no_script_is_refused(void **state)
{
    static const char *const calls[] = {"", "TP=4", "sbatch --nodes=4", "bash 4 2", "TP=4 'job.sh"};
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        if (import_called(&out, "torchrun pretrain_gpt.py --micro-batch-size 1", calls[i], &e) >= 0)
            fail_msg("`%s` was taken", calls[i]);
    assert_non_null(strstr(e.text, "unterminated quote"));
    assert_true(import_called(&out, "MODEL_ARGS:\n  --micro-batch-size: 1\n", "job.sh", &e) < 0);
    assert_non_null(strstr(e.text, "no job script"));
}

/* A program of another name may have degrees of its own: a batch alone is no layout. */
static void a_batch_alone_is_a_layout_of_megatrons_own_programs_only(void **state)
{
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    assert_int_equal(import(&out, "torchrun a/pretrain_gpt.py --micro-batch-size 4", &e), 0);
    assert_int_equal(out.layout.micro_batch, 4);
    assert_int_equal(import(&out, "LLM_TP=4 torchrun mimo.py --micro-batch-size 4", &e), -EINVAL);
    assert_non_null(strstr(e.text, "mimo.py gets a batch, but no degree"));
    e = (struct err){0};
    assert_int_equal(import(&out,
                            "torchrun mimo.py --micro-batch-size 4 "
                            "--tensor-model-parallel-size 1",
                            &e),
                     0);
}

static void what_a_shell_would_have_to_tell_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"torchrun pretrain_gpt.py --tensor-model-parallel-size $TP", "`$TP` is not set"},
        {"TP=$X\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP", "`$X` is not set"},
        {"torchrun pretrain_gpt.py --global-batch-size $((N * 4))", "`N` is not set"},
        {"N=$1\ntorchrun pretrain_gpt.py --global-batch-size $(($N * 4))",
         "`$1` is an argument of the script"},
        {"torchrun pretrain_gpt.py --global-batch-size $(basename $0)", "`$(basename $0)` needs"},
        {"basename() { echo 8; }\nN=$(basename a/4)\ntorchrun pretrain_gpt.py --global-batch-size "
         "$N",
         "`$(basename a/4)` needs a shell"},
        {"N=8\ntorchrun pretrain_gpt.py --global-batch-size $((N << 64))",
         "`$((N << 64))` needs a shell"},
        {"N=8\ntorchrun pretrain_gpt.py --global-batch-size $((N @ 2))",
         "`$((N @ 2))` needs a shell"},
        {"N=0\ntorchrun pretrain_gpt.py --global-batch-size $((8 / N))",
         "`$((8 / N))` divides by zero"},
        {"N=0\ntorchrun pretrain_gpt.py --global-batch-size $((8 % N))", "divides by zero"},
        {"torchrun pretrain_gpt.py --global-batch-size $((9223372036854775807 + 1))",
         "does not fit"},
        {"torchrun pretrain_gpt.py --global-batch-size $((9999999999 * 9999999999))",
         "does not fit"},
        {"torchrun pretrain_gpt.py --global-batch-size $((2 ** 80))", "does not fit"},
        {"torchrun pretrain_gpt.py --global-batch-size $((-9223372036854775807 - 2))",
         "does not fit"},
        {"torchrun pretrain_gpt.py --global-batch-size $((08))", "needs a shell"},
        {"unset IFS\nread A N <<< '1 64'\ntorchrun pretrain_gpt.py --global-batch-size $N",
         "`$N` needs a shell"},
        {"A=B; B=A\ntorchrun pretrain_gpt.py --global-batch-size $((A))", "needs a shell"},
        {"torchrun pretrain_gpt.py --micro-batch-size ${10}",
         "`${10}` is an argument of the script, which reads $1 to $10 (line 1)"},
        {". site.sh\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` is not set in this text (line 2), maybe in a file that it sources"},
        {"TP=2\nread -r -p 'how many?' TP\ntorchrun pretrain_gpt.py --tensor-model-parallel-size "
         "$TP",
         "`$TP` needs a shell"},
        {"read N <hosts\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${N:-4}",
         "`$N` needs a shell"},
        {"readarray -t TP <hosts\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${TP:-4}",
         "`$TP` needs a shell"},
        {"printf -v TP %d 8\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${TP:-4}",
         "`$TP` needs a shell"},
        {"TP=1\nlet TP=TP*N\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"TP=1\n((++TP[0]))\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"TP=1\necho $((TP[0]++))\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"TP=(1 2)\nTP[$I]=4\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${TP[0]}",
         "`$TP` needs a shell"},
        {"declare -A TP=([small]=1 [$KIND]=8)\ntorchrun pretrain_gpt.py "
         "--tensor-model-parallel-size ${TP[large]}",
         "`$TP` needs a shell"},
        {"declare -A TP=([small]=1 [large]=8)\ntorchrun pretrain_gpt.py "
         "--tensor-model-parallel-size ${TP[$KIND]}",
         "`${TP[$KIND]}` needs a shell"},
        {"declare -A TP=([a]=4)\n[ -f x ] && TP[a]=8\ntorchrun pretrain_gpt.py "
         "--tensor-model-parallel-size ${TP[a]}",
         "`$TP` is set under a condition"},
        {"A=(1 4)\nunset 'A[0]'\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${A[1]}",
         "`$A` needs a shell"},
        {"A=($NODES 4)\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${A[1]}",
         "`$NODES` is not set"},
        {"VP=$(cat vp)\ntorchrun pretrain_gpt.py "
         "${VP:+--num-layers-per-virtual-pipeline-stage 2} --pipeline-model-parallel-size 2",
         "`--num-layers-per-virtual-pipeline-stage` is set under a condition"},
        {"if [ $BY = mpi ]; then\n    APP='python pretrain_gpt.py --tp'\nfi\n$APP\n",
         "the command `$APP` is set under a condition"},
        {"torchrun pretrain_gpt.py --zero-stage $Z --deepspeed", "`$Z` is not set"},
        {"torchrun pretrain_gpt.py --tp-size $T", "`$T` is not set"},
        {"python train.py --seed 1\npython train.py --seed 2",
         "starts train.py twice, with different arguments"},
        {"echo torchrun pretrain_gpt.py --tensor-model-parallel-size 4",
         "expected a command that starts"},
        {"log() { echo \"$@\"; }\nlog pretrain_gpt.py has started\n",
         "expected a command that starts"},
        {"N=$(nproc)\ntorchrun pretrain_gpt.py --micro-batch-size $N", "`$(nproc)` needs a shell"},
        {"torchrun pretrain_gpt.py --micro-batch-size `nproc`", "``nproc`` needs a shell"},
        {"N=12\ntorchrun pretrain_gpt.py --micro-batch-size ${N@Q}", "`${N@Q}` needs a shell"},
        {"torchrun pretrain_gpt.py --bf16 $MORE", "`$MORE` is not set"},
        {"torchrun pretrain_gpt.py --seed 1 ${MOE[@]}", "`${MOE[@]}` is not set"},
        {"torchrun pretrain_gpt.py --use-flash-attn $MOE_ARGS", "`$MOE_ARGS` is not set"},
        {"torchrun pretrain_gpt.py --tensor-model-parallel-size $1",
         "`$1` is an argument of the script"},
        {"TP=1\nif [ $G = 8 ]; then TP=4; fi\ntorchrun pretrain_gpt.py "
         "--tensor-model-parallel-size $TP",
         "`$TP` is set under a condition"},
        {"A=\"--bf16\"\nif [ $G = 8 ]; then A=\"$A --sequence-parallel\"; fi\n"
         "torchrun pretrain_gpt.py $A",
         "`--sequence-parallel` is set under a condition"},
        {"A=()\n[ $G = 8 ] && A+=(--tensor-model-parallel-size 4)\n"
         "torchrun pretrain_gpt.py ${A[@]}",
         "`--tensor-model-parallel-size` is set under a condition"},
        {"TP=1\nread TP\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"TP=1\n((TP *= N))\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"TP=2\nf(){\n    TP=8\n}\n[ $G = 8 ] && f\ntorchrun pretrain_gpt.py "
         "--tensor-model-parallel-size $TP",
         "`$TP` is set under a condition"},
        {"for TP in $(seq $N); do :; done\ntorchrun pretrain_gpt.py --tensor-model-parallel-size "
         "$TP",
         "`$TP` is set under a condition"},
        {"TP=2\nfor i in 1 2; do [ -f x ] && break; TP=4; done\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` is set under a condition"},
        {"f() {\n    local TP=2\n}\nf\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` is not set"},
        {"f() {\n    TP=2\n    f\n}\nf\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "functions call each other over"},
        {"set -- 4 $MORE\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $2",
         "`$2` is an argument of the script"},
        {"N=x\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${N/x*/2}",
         "`${N/x*/2}` needs a shell"},
        {"#SBATCH --nodes=2-4\ntorchrun pretrain_gpt.py --global-batch-size $SLURM_NNODES",
         "`$SLURM_NNODES` is not set in this text (line 2)"},
        {"[ -z \"\" ] && exit 1\ntorchrun pretrain_gpt.py --tensor-model-parallel-size 2",
         "the script exits before it starts a program"},
        {"for TP in 1 2; do\n    torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\ndone",
         "starts pretrain_gpt.py twice"},
        {"A=1 B=\"$A", "unterminated quote"},
        {"A=(1 2", "unclosed bracket"},
        {"torchrun pretrain_gpt.py --seed ${A", "unclosed bracket"},
        {"torchrun pretrain_gpt.py --seed 1\ntorchrun pretrain_bert.py --seed 2",
         "both pretrain_gpt.py and pretrain_bert.py"},
        {"python train.py --seed 1\npython eval.py", "both train.py and eval.py"},
        {"TP=4\necho nothing runs", "expected a command that starts a .py program"},
        {"export CLUSTER=\nTP=2 PP=8 bash sbatch_benchmarking.sh --mtp-num-layers 1\n",
         "import the final command"},
        {"for a in $*; do app=$a; done\n$app\n", "say how it is called (--call"},
        {"IFS=,\nS=4,2\nL=($S)\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${L[0]}",
         "`$IFS` needs a shell"},
        {"A='--tensor-model-parallel-size 4'\nIFS=$'\\n\\t'\ntorchrun pretrain_gpt.py $A",
         "`$IFS` needs a shell"},
        {"torchrun pretrain_gpt.py --micro-batch-size $(echo 4|bc)", "needs a shell"},
        {"torchrun pretrain_gpt.py --micro-batch-size $(expr 4 * 2)", "needs a shell"},
        {"torchrun pretrain_gpt.py --micro-batch-size $(echo 010 | bc)", "needs a shell"},
        {"echo() { :; }\ntorchrun pretrain_gpt.py --micro-batch-size $(echo 4)", "needs a shell"},
        {"L=(1 2) i=0\nL[i++]=4\ntorchrun pretrain_gpt.py --tensor-model-parallel-size ${L[$i]}",
         "`$L` needs a shell"},
        {"((TP = N ? 2 : (M = 4)))\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "`$TP` needs a shell"},
        {"X=4\ndeclare -n TP=X\ntorchrun pretrain_gpt.py --tensor-model-parallel-size $TP",
         "declare -n TP=X"},
        {"torchrun pretrain_gpt.py --tensor-model-parallel-size 4 \\\n  --seed 1\n"
         "  --recompute-activations\n",
         "`--recompute-activations` is not an argument of the program"},
        {"torchrun pretrain_gpt.py --tensor-model-parallel-size 4 \\\n  # --seed 1 \\\n"
         "  --pipeline-model-parallel-size=2\n",
         "`--pipeline-model-parallel-size` is not an argument of the program"},
        {"x=$x$x\n", "expected a command"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, cases[i].text, &e) >= 0)
            fail_msg("`%s` was read", cases[i].text);
        if (!strstr(e.text, cases[i].named))
            fail_msg("`%s`: `%s` does not say `%s`", cases[i].text, e.text, cases[i].named);
    }
}

/* DeepSpeed follows its file, which many scripts write themselves. */
static void the_configuration_that_a_script_writes_is_read(void **state)
{
    static const char run[] = "deepspeed pretrain_gpt.py --deepspeed --micro-batch-size 1 --fp16 "
                              "--no-pipeline-parallel --deepspeed_config ";
    static const struct {
        const char *script, *file;
        int zero;
        const char *said; /* a finding's detail; or the error */
    } cases[] = {
        {"Z=2\ncat <<EOT > ds.json\n{\"zero_optimization\": {\"stage\": $Z}}\nEOT\n", "ds.json", 2,
         NULL},
        {"Z=2\nF=./ds.$SLURM_JOB_ID.json\ncat > $F <<-EOT\n\t{\n\t\"zero_optimization\": "
         "{\"stage\": ${Z}}\n\t}\n\tEOT\n",
         "$F", 2, NULL},
        {"cat >\"ds.json\" <<'EOT'\n{\"zero_optimization\": {\"stage\": 3}, \"name\": "
         "\"$X\"}\nEOT\n",
         "$PWD/ds.json", 3, NULL},
        {"echo '{\"zero_optimization\": {\"stage\": 1}}' > ds.json\n", "ds.json", 1, NULL},
        {"tee ds.json <<EOT\n{\"zero_optimization\": {\"stage\": 2}}\nEOT\n", "ds.json", 2, NULL},
        {"Z=2\ncat <<EOT | tee ds.json\n{\"zero_optimization\": {\"stage\": $Z}}\nEOT\n", "ds.json",
         2, NULL},
        {"echo '{\"zero_optimization\":' > ds.json\necho '{\"stage\": 1}}' >> ds.json\n", "ds.json",
         1, NULL},
        {"for Z in 1 2; do\ncat <<E > ds.json\n{\"zero_optimization\": {\"stage\": $Z}, "
         "\"steps_per_print\": $N}\nE\ndone\n",
         "ds.json", 2, "not a setting of the layout"},
        {"cat <<E > ds.json\n{\"zero_optimization\": {\"stage\": 2}}\nE\n",
         "ds.json --zero-stage 1", 2,
         "1, but --deepspeed_config has stage 2, which DeepSpeed follows"},
        {"", "there.json --zero-stage 1", 1, "this file is not in the script, and is not read"},
        {"cat <<E > ds.json\n{\"zero_optimization\": {\"stage\": 2}}\nE\nsed -i s/2/3/ ds.json\n",
         "ds.json --zero-stage 3", 3, "what the script writes there is unknown here"},
        {"cat <<E > ds.json\n{\"zero_optimization\": {\"stage\": $Z}}\nE\n", "ds.json", -1, "$Z"},
        {"[ $A ] && cat <<E > ds.json\n{\"zero_optimization\": {\"stage\": 2}}\nE\n", "ds.json", -1,
         "depends on more than the script"},
        {"for Z in 1 2; do\ncat <<E > ds.json\n{\"zero_optimization\": {\"stage\": $Z}}\nE\n"
         "torchrun pretrain_gpt.py --micro-batch-size 1 --seed $Z\ndone\n",
         "ds.json --seed 2", -1, "starts pretrain_gpt.py twice, with different arguments"},
        {"python config.py > ds.json\n", "ds.json", -1, "depends on more than the script"},
        {"cat <<E > ds.json\n{\"zero_optimization\": {\"stage\": 7}}\nE\n", "ds.json", -1,
         "--deepspeed_config ds.json"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_STR text = {0};
        struct tn_imported out = {0};
        struct err e = {0};
        bool said = !cases[i].said;
        int r;

        str_addf(&text, "%s%s%s\n", cases[i].script, run, cases[i].file);
        r = import(&out, str_text(&text), &e);
        if (cases[i].zero < 0 ? r >= 0 || !strstr(e.text, cases[i].said)
                              : r < 0 || out.layout.zero != cases[i].zero)
            fail_msg("%s: zero %d `%s`", str_text(&text), out.layout.zero, e.text);
        for (int k = 0; k < out.ignored.count; k++)
            said |= cases[i].said && str_eq(out.ignored.v[k].detail, cases[i].said);
        if (cases[i].zero >= 0 && !said)
            fail_msg("%s: nothing says `%s`", str_text(&text), cases[i].said);
    }
}

/* What has no word here may be whatever it is: it is listed as it is written. */
static void unknown_values_of_other_settings_are_listed(void **state)
{
    static const char script[] =
        "DATA=$1\nsource $SITE/site.sh\nif [ $A ]; then LOG=\"--log-interval 5\"; fi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --data-path \"$DATA\" "
        "--hidden-size $H $LOG \"$@\" | tee log\n";
    static const char *const want[][2] = {
        {"source", "what $SITE/site.sh sets is unknown here"},
        {"|", "the command ends here"},
        {"--data-path", "not a setting of the layout: $1"},
        {"--hidden-size", "$H, but llama-8b has 4096: another model?"},
        {"--log-interval", "not a setting of the layout: 5"},
        {"$@", "the script's own arguments are unknown here"},
    };
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    if (import(&out, script, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.ignored.count, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_string_equal(out.ignored.v[i].setting, want[i][0]);
        assert_string_equal(out.ignored.v[i].detail, want[i][1]);
    }
}

/* The daemon reads these between two requests: the time is bounded, whatever the text. */
static void hostile_scripts_end(void **state)
{
    static const struct {
        const char *first, *again;
        int times;
        const char *end, *named; /* NULL: any answer */
    } cases[] = {
        {"A=--x\n", "A=\"$A $A\"\n", 60, "torchrun pretrain_gpt.py $A", "without end"},
        {"A=(--x)\n", "A+=(\"${A[@]}\")\n", 60, "torchrun pretrain_gpt.py ${A[@]}", "without end"},
        {"A=(--x)\n", "A+=(--y)\n", 30000, "torchrun pretrain_gpt.py ${A[@]}", NULL},
        {"A=--x\n", "[ 1 ] && A=\"$A --y\"\n", 5000, "", "without end"},
        {"", "x", 1 << 20, "", "begins with --"},
        {"--save ", "x", 1 << 20, "", NULL},
        {"", "--x ", 1 << 18, "", NULL},
        {"", "${A:-", 1 << 17, "", "unclosed bracket"},
        {"x=", "$(", 1 << 18, "", "unclosed bracket"},
        {"", "<<X\n", 1 << 17, "", NULL},
        {"", "A <<X <<Y\n", 1 << 16, "", NULL},
        {"", "if [ \n", 1 << 16, "", NULL},
        {"", "$A$B", 1 << 17, "", "expected a command"},
        {"", "((", 1 << 17, "", "unclosed bracket"},
        {"", "\\\n", 1 << 18, "--bf16", NULL},
        {"\"", "\\", 1 << 18, "", NULL},
        {"", "sh -c \"x.py \"'", 1 << 15, "", NULL},
        {"", "for i in 1 2 3 4 5 6 7 8; do\n", 40, "x\n", NULL},
        {"", "while :; do A=$A.\n", 30, "done\n", NULL},
        {"", "f() {\n", 1 << 16, "", NULL},
        {"f() { A=--$A; }\n", "f\n", 1 << 15, "", NULL},
        {"A=--x\n", "{ A=\"$A --y\"\n}\n", 20000, "", NULL},
        {"a() { :; }\n", "a\n", 1 << 16, "", NULL},
        {"torchrun pretrain_gpt.py --micro-batch-size $((", "!", 1 << 17, "1))", NULL},
        {"torchrun pretrain_gpt.py --micro-batch-size $((", "1?", 1 << 17, "1))", NULL},
        {"", "eval ", 1 << 16, "x", NULL},
        {"A='eval $A'\n", "eval $A\n", 1 << 14, "", NULL},
        {"A=x\n", "[ $B ] && A+=' x'\n", 5000, "$A", NULL},
        {"", "echo xxxxxxxxxxxxxxxx >> f\n", 1 << 15, "", NULL},
        {"", "cat <<E > f\n", 1 << 15, "", NULL},
        {"getopts a:b o\n", "getopts a:b o -a\n", 1 << 14, "", NULL},
        {"", "A[", 1 << 17, "]=", NULL},
        {"N=", "x", 1 << 16, "\ntorchrun pretrain_gpt.py --micro-batch-size ${N%x*y}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_STR text = {0};
        struct tn_imported out;
        struct err e = {0};
        int r;

        str_add(&text, cases[i].first);
        for (int n = 0; n < cases[i].times; n++)
            str_add(&text, cases[i].again);
        str_add(&text, cases[i].end);
        r = import(&out, str_text(&text), &e);
        assert_true(r >= 0 || e.text[0]);
        if (cases[i].named && (r >= 0 || !strstr(e.text, cases[i].named)))
            fail_msg("case %zu: %d `%s`", i, r, e.text);
    }
    { /* more variables than any script has */
        AUTO_STR text = {0};
        struct tn_imported out;
        struct err e = {0};

        for (int n = 0; n < 50000; n++)
            str_addf(&text, "A%d=1\n", n);
        assert_true(import(&out, str_text(&text), &e) < 0);
        assert_non_null(strstr(e.text, "variables"));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(scripts_are_read_as_a_shell_would),
    cmocka_unit_test(a_call_gives_variables_and_arguments),
    cmocka_unit_test(a_call_that_names_no_script_is_refused),
    cmocka_unit_test(a_batch_alone_is_a_layout_of_megatrons_own_programs_only),
    cmocka_unit_test(what_a_shell_would_have_to_tell_is_refused_by_name),
    cmocka_unit_test(the_configuration_that_a_script_writes_is_read),
    cmocka_unit_test(unknown_values_of_other_settings_are_listed),
    cmocka_unit_test(hostile_scripts_end),
};

UNIT_MAIN(tests)
