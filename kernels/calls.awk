# Functions from the prototypes of kernels.h, one for each operation of KN_BACKEND_OPS: awk -f calls.awk MODE=call kernels.h
#
#   MODE=call    kn_OP, the operation as a call into the backend of its pool
#   MODE=async   async_OP for tests/unit/async_backend.c, which keeps the arguments until kn_wait; not for operations that
#                return a value or take a struct, which is kept by hand there
{ text = text $0 "\n" }

function strip_comments(from,    out, at) { # of FROM, and every run of blanks becomes one
    while ((at = index(from, "/*")) > 0) {
        out = out substr(from, 1, at - 1)
        from = substr(from, at)
        from = substr(from, index(from, "*/") + 2)
    }
    out = out from
    gsub(/[ \t\n\\]+/, " ", out)
    return out
}

function name_of(param) { # the last word of it
    sub(/.*[ *]/, "", param)
    return param
}

function names(before,    i, out) { # of all parameters behind the pool, each behind ", BEFORE"
    for (i = 2; i <= params; i++)
        out = out ", " before name_of(param[i])
    return out
}

function call(value) {
    printf "\n%s kn_%s(%s)\n{\n    %skn_pool_backend(pool)->%s(pool%s);\n}\n", value, op, list,
        value == "void" ? "" : "return ", op, names("")
}

function async(    i) {
    printf "\nstruct %s_args {\n", op
    for (i = 2; i <= params; i++)
        printf "    %s;\n", param[i]
    printf "};\n\nstatic void run_%s(const void *args)\n{\n    const struct %s_args *c = args;\n\n", op, op
    printf "    kn_host_%s(NULL%s);\n}\n\nvoid async_%s(%s)\n{\n", op, names("c->"), op, list
    printf "    async_launch(pool, run_%s, &(struct %s_args){%s},\n", op, op, substr(names(""), 3)
    printf "                 sizeof(struct %s_args));\n}\n", op
}

END {
    text = strip_comments(text)
    print "/* Made by kernels/calls.awk from kernels/kernels.h: do not edit. */"
    print MODE == "call" ? "#include \"kernels/backend.h\"" : "#include \"tests/unit/async_backend.h\""
    ops = text
    sub(/.*#define KN_BACKEND_OPS\(X\)/, "", ops)
    n = split(text, statement, ";")
    for (i = 1; i <= n; i++) {
        if (!match(statement[i], /(void|double) kn_[a-z0-9_]+\(struct kn_pool \*pool, [^()]*\)$/))
            continue
        found = substr(statement[i], RSTART)
        value = found
        sub(/ .*/, "", value)
        op = found
        sub(/^[a-z]+ kn_/, "", op)
        sub(/\(.*/, "", op)
        if (index(ops, "X(" op ")") == 0)
            continue
        list = found
        sub(/^[^(]*\(/, "", list)
        sub(/ *\)$/, "", list)
        gsub(/ +,/, ",", list)
        params = split(list, param, ", ")
        if (MODE == "call")
            call(value)
        else if (value == "void" && list !~ /pool, .*struct / && op != "gemm_grouped")
            async()
    }
}
