#!/bin/sh
# bars.sh BARS: passes JSON lines of a benchmark on, then prints a table of what each bar wants, what was measured and whether it is met.
# A line of BARS is "bench; regular expression of the case; field; <= or >=; bar; aim or -; what it is". A bar that no line answers to is said to be not measured.
awk -v bars="${1:?}" '
function field(line, name,    at, rest) {
    at = index(line, "\"" name "\":")
    if (!at)
        return ""
    rest = substr(line, at + length(name) + 3)
    if (substr(rest, 1, 1) == "\"") {
        rest = substr(rest, 2)
        return substr(rest, 1, index(rest, "\"") - 1)
    }
    match(rest, /^[-+0-9.eE]+|^true|^false/)
    return substr(rest, 1, RLENGTH)
}
function passes(got, op, bar) {
    return op == ">=" ? got + 0 >= bar + 0 : got + 0 <= bar + 0 && got + 0 >= 0
}
BEGIN {
    while ((getline line < bars) > 0)
        if (line !~ /^#/ && split(line, part, / *; */) == 7) {
            n++
            for (i = 1; i <= 7; i++)
                want[n, i] = part[i]
        }
}
{
    print
    bench = field($0, "bench")
    which = field($0, "case")
    for (i = 1; i <= n; i++)
        if (bench == want[i, 1] && which ~ want[i, 2] && (got = field($0, want[i, 3])) != "") {
            seen[i] = 1
            met = passes(got, want[i, 4], want[i, 5])
            aim = want[i, 6] != "-" && passes(got, want[i, 4], want[i, 6])
            missed += !met
            row[++rows] = sprintf("%-6s %9s %2s %-7s %s: %s", aim ? "aim" : met ? "met" : "MISSED", got, want[i, 4], want[i, 5], want[i, 7], which)
        }
}
END {
    print ""
    printf "%-6s %9s    %-7s\n", "", "measured", "bar"
    for (i = 1; i <= rows; i++)
        print row[i]
    for (i = 1; i <= n; i++)
        if (!seen[i])
            printf "%-6s %9s %2s %-7s %s\n", "-", "-", want[i, 4], want[i, 5], want[i, 7]
    printf "%d of %d bars met; -1 is never\n", rows - missed, rows
}'
