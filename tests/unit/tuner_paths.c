/* Job scripts whose conditions only a shell could tell, where every way through them leads to one
 * layout: they are read; and others, which are refused. */
#include "tests/unit/unit.h"

#include "tests/unit/import_text.h"
#include "tuner/export/export.h"

static int import(struct tn_imported *ret, const char *text, struct err *e)
{
    AUTO_JSON *name = json_string("llama-8b");
    struct pl_model m;

    if (pl_model_parse(&m, name, e) < 0)
        fail_msg("llama-8b: %s", e->text);
    return import_text(ret, "megatron", text, 32, &m, e);
}

/* Each trains by tp 4 and pp 2, whatever the conditions say. */
static void one_layout_on_every_path_is_read(void **state)
{
    static const char *const scripts[] = {
        /* the launcher */
        "A=\"--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\"\n"
        "if nvidia-smi | grep -q H100; then RUN=\"torchrun --nproc_per_node 8 pretrain_gpt.py "
        "$A\"\n"
        "else RUN=\"srun --ntasks 8 python pretrain_gpt.py $A --log\"\nfi\n$RUN\n",
        "if [ -f x ]; then L=\"torchrun --nproc_per_node 8\"\nelse L=\"srun python\"\nfi\n"
        "A=\"--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\"\n"
        "[ -f x ] && M=1 || M=1\n$L pretrain_gpt.py $A --micro-batch-size $M\n",
        /* a degree, set alike with different company */
        "if [ -d /data ]; then\n    DATA=/data; TP=4\nelif [ -d /other ]; then\n    DATA=/other\n"
        "    TP=4\nelse\n    DATA=; TP=$((2 * 2))\nfi\ntorchrun pretrain_gpt.py "
        "--tensor-model-parallel-size $TP --pipeline-model-parallel-size 2 --data-path $DATA\n",
        /* a path that starts nothing has no layout */
        "TP=1\nif [ -f /checked ]; then TP=4\nelse\n    echo unchecked >&2\n    exit 1\nfi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size 2\n",
        "TP=1\n[ -f /checked ] && TP=4 || exit 1\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size 2\n",
        /* one program or the other */
        "A=\"--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2\"\n"
        "if [ -d /profiles ]; then\n    nsys profile python pretrain_gpt.py $A --profile\n"
        "else\n    python pretrain_gpt.py $A\nfi\n",
        /* case, and a function that is called under a condition */
        "case $(hostname) in a*) TP=4 C=1 ;; b*) TP=4 C=2 ;; *) TP=4 C=3 ;; esac\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size 2 --seed $C\n",
        "f() {\n    TP=$1\n    PP=2\n}\nTP=2\n"
        "if [ -f x ]; then f 4; else f 4; fi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size $PP\n",
        /* two conditions, one of which is made of the other's variable */
        "if [ -f x ]; then N=8; else N=16; fi\nif [ $N = 8 ]; then TP=4; else TP=4; M=; fi\n"
        "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP "
        "--pipeline-model-parallel-size 2 --num-workers $N\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct tn_imported out;
        struct err e = {0};
        bool listed = false;

        if (import(&out, scripts[i], &e) < 0)
            fail_msg("%s: %s", scripts[i], e.text);
        if (out.layout.tp != 4 || out.layout.pp != 2)
            fail_msg("%s: tp %d pp %d", scripts[i], out.layout.tp, out.layout.pp);
        for (int k = 0; k < out.ignored.count; k++)
            listed |= str_eq(out.ignored.v[k].setting, "conditions") ||
                      str_eq(out.ignored.v[k].setting, "starts"); /* whatever decides on them */
        if (!listed)
            fail_msg("%s: neither conditions nor starts are listed", scripts[i]);
    }
}

static void paths_of_several_layouts_are_refused(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"if [ -f x ]; then TP=4; else TP=2; fi\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        {"if [ -f x ]; then TP=4; elif [ -f y ]; then TP=2; else TP=4; fi\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        {"TP=4\n[ -f x ] && [ -f y ] && TP=2\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        /* a loop that may run any number of times is no two paths */
        {"TP=1\nfor f in *; do [ -d $f ] && TP=4 || TP=4; done\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        {"TP=4\nfor i in 1 2; do [ -f x$i ] && TP=$i; done\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        {"if [ -f x ]; then python pretrain_gpt.py --tensor-model-parallel-size 4\n"
         "else python pretrain_gpt.py --tensor-model-parallel-size 2\nfi\n",
         "starts pretrain_gpt.py twice"},
        {"if [ -f x ]; then TP=4; else TP=; fi\n"
         "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n",
         "`$TP` is set under a condition (line 1)"},
        {"if [ -f x ]; then L='python pretrain_gpt.py'; else L='python train.py'; fi\n"
         "$L --micro-batch-size 1\n",
         "set under a condition"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tn_imported out;
        struct err e = {0};

        if (import(&out, cases[i].text, &e) == 0)
            fail_msg("%s was read", cases[i].text);
        if (!strstr(e.text, cases[i].named))
            fail_msg("%s: %s does not name %s", cases[i].text, e.text, cases[i].named);
    }
}

/* More conditions than paths may be: it ends, and says what is not known. */
static void many_conditions_are_refused_in_time(void **state)
{
    AUTO_STR text = {0};
    struct tn_imported out;
    struct err e = {0};

    (void)state;
    for (int i = 0; i < 400; i++)
        str_addf(&text, "if [ -f x%d ]; then TP=4; A=%d; else TP=4; fi\n", i, i);
    str_addf(&text, "torchrun pretrain_gpt.py --tensor-model-parallel-size $TP\n");
    assert_true(import(&out, str_text(&text), &e) < 0);
    assert_non_null(strstr(e.text, "`$TP` is set under a condition"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_layout_on_every_path_is_read),
    cmocka_unit_test(paths_of_several_layouts_are_refused),
    cmocka_unit_test(many_conditions_are_refused_in_time),
};

UNIT_MAIN(tests)
