#!/usr/bin/python3
"""Job scripts with conditions, drawn at random: conditions.py IMPORT FOLDER SEED COUNT.

bash runs each, and writes down the arguments of the program that it would start. IMPORT then reads the script, which it may
refuse where only a shell could tell, and those arguments: both must be one layout. Prints "READ REFUSED WRONG DECIDED" on the last
line, before that each wrong script: DECIDED are scripts whose every condition the script itself decides, none of which may be refused.
"""
import os
import random
import subprocess
import sys

NAMES = ["TP", "PP", "MBS", "KIND", "FLAG"]
VALUES = {"TP": ["1", "2", "4"], "PP": ["1", "2", "4"], "MBS": ["1", "2"], "KIND": ["fp8", "bf16", "", "moe-8x"], "FLAG": ["0", "1"]}
NUMBERS = ["TP", "PP", "MBS", "FLAG"]
# What only a shell can tell; the last two fail.
UNSURE = ["[ -d / ]", '[ -n "$HOME" ]', "grep -q root /etc/passwd", '[[ -z "${NOT_SET_HERE-}" ]]', "[ -f /not/there ]", "false | grep -q x"]
LISTED = ["--sequence-parallel", "--use-distributed-optimizer", "--overlap-grad-reduce"]


class Script:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.sure = self.rng.random() < 0.6
        self.functions = self.loops = 0
        self.given, self.call = [], None # where the call is not known, it is one without arguments, for which defaults are
        if self.rng.random() < 0.7:
            self.given = [self.rng.choice(["1", "2", "4", "fp8"]) for _ in range(self.rng.randint(0, 4))]
            name = self.rng.choice(NUMBERS)
            self.call = f"GIVEN_{name}={self.rng.choice(VALUES[name])} bash drawn.sh " + " ".join(self.given)
        self.lines = ["#!/bin/bash", f"#SBATCH --nodes={self.rng.choice([1, 2, 4])}"]
        if not self.call: # without a call, an environment may hold what nothing has set
            self.lines.append("PARTS=()")
        self.ends = bool(self.call) and not self.sure and self.rng.random() < 0.4
        if self.ends: # by what is not set
            self.lines.append(self.rng.choice(["set -u", "set -eu -o pipefail; set +e", "set -o nounset"]))
        self.lines.append("fp8=0 bf16=0") # which [[ fp8 -eq 0 ]] reads
        self.lines += [f"{n}={v[0]}" for n, v in VALUES.items()] + ["declare -A BY", "ROW=()", "ARGS=", "LIST=()", "COUNT=0", "GUARD=0", "NOTHING=", "EXTRA="]

    def add(self, indent, text):
        self.lines.append("    " * indent + text)

    def test(self, depth=0):
        rng = self.rng
        name, number = rng.choice(NAMES), rng.choice(NUMBERS)
        value = rng.choice(VALUES[name])
        op = rng.choice(["-eq", "-ne", "-lt", "-le", "-gt", "-ge"])
        sign = rng.choice(["==", "!=", "<", ">", "<=", ">="])
        choices = [
            f'[ "${name}" = "{value}" ]',
            f'[ "${{{name}}}" != "{value}" ]',
            f"[ ${number} {op} {rng.randrange(4)} ]",
            f'test "${name}" == "{value}"',
            f'[[ ${name} == "{value}" ]]',
            f'[[ "${name}" == {value[:2] or "?"}* ]]',
            f"[[ ${name} != *[8-9]* ]]",
            f'[[ ${number} {op} 2 && "$KIND" == fp8 ]]',
            f'[[ -z "${name}" ||\n    ( ${number} {op} 1 ) ]]',
            f"(( {number} {sign} 2 ))",
            f"(( {number} % 2 == 0 && (${{TP}} > 1 || PP {sign} 2) ))",
            f'[ -n "${name}" -a ${number} {op} 1 ]',
            f'[ ! -z "${name}" ]',
            f'[ -z "$LATER_{name}" ]', # which the script sets, or does not
            f'[[ -v LATER_{number} && $LATER_{number} -gt 1 ]]',
            "[ $# -gt 1 ]",
            f'[ -{rng.choice("zn")} "$1" ]',
            "true",
            "false",
        ]
        text = rng.choice(choices)
        if not self.sure and rng.random() < 0.25:
            text = rng.choice(UNSURE)
        if rng.random() < 0.15:
            text = "! " + text
        if depth < 2 and rng.random() < 0.3:
            text += rng.choice([" && ", " || ", " &&\n    ", " || "]) + self.test(depth + 1)
        return text

    def assign(self):
        rng = self.rng
        name = rng.choice(NAMES)
        number = rng.choice(NUMBERS)
        if rng.random() < 0.25:
            return rng.choice([
                f"{number}=${{{rng.randint(1, 5)}:-2}}",
                f"{number}=$(( $# > {rng.randrange(4)} ? 2 : 1 ))",
                f"{number}=${{GIVEN_{number}:-1}}" if self.call and f"GIVEN_{number}=" in self.call else f"{number}=1",
                'set -- "$@" 2',
                "shift",
                f"LATER_{name}={rng.choice(VALUES[name])}",
                f"LATER_{number}=2 {number}=${{LATER_{number}}}",
                f"unset LATER_{number}; {number}=${{LATER_{number}:-1}}",
            ])
        if rng.random() < 0.2:
            return rng.choice([
                f"{number}=$SLURM_NNODES",
                f"KIND=moe-${{KIND%-*}} KIND=${{KIND#moe-}}",
                f"KIND=${{KIND/f/F}} KIND=${{KIND,,}}",
                f"{number}=${{#LIST[@]}} {number}=$(( !{number} + 1 ))",
                f"unset {name}; {name}=${{{name}:-{VALUES[name][0]}}}",
                f"{name}={rng.choice(VALUES[name])} {number}=2 {rng.choice(['true', ':', 'test x = $KIND', 'test 2 = $' + number])}",
                f"read -r {number} REST <<< {rng.choice(['2', chr(34) + '2  1' + chr(34), chr(34) + ' 4 1 ' + chr(34), '$TP'])}",
                f"IFS={rng.choice(['x', '-', ',', chr(39) + ', ' + chr(39)])} read -r -a PARTS <<< {rng.choice(['$KIND', chr(34) + '1, 2' + chr(34), ',1,', '1x-2'])};"
                f" {number}=${{#PARTS[@]}}",
                f"{number}=$(basename ${number}/{rng.choice(['2', '4.sh', '1/'])} .sh)",
                f"{number}=$(echo {rng.choice(['2', '$TP', '4,1', '1,2,4', chr(34) + ' 2,4 ' + chr(34), '$KIND,2'])} | cut -d, -f{rng.choice('12')}); {number}=$(( ${{{number}:-1}} ? 2 : 1 ))",
                f"{number}=$(expr {rng.choice(['1', '$TP', '$MBS'])} {rng.choice(['+', '/', chr(92) + '*'])} 2 + 1)",
                f"{number}=`echo \"($TP + 1) * 2 / $MBS\" | bc`",
                f"{number}=$(echo \"a $PP  $MBS\" | awk '{{print ${rng.choice('234')}}}') {number}=${{{number}:-1}}",
                f"KIND=$(echo a:$KIND:b | awk -F: '{{ print ${rng.choice('123')} }}')",
                f"KIND=$(basename $(dirname \"a/$KIND/b\"))",
                f"read -r {number} {rng.choice(NUMBERS)} <<< {rng.choice([chr(34) + '1 2' + chr(34), chr(34) + '2 1' + chr(34), chr(34) + ' 4 1 2 ' + chr(34)])}",
                f"{number}=4 {number}=2 {rng.choice(['', '$NOTHING', 'true'])}",
                f"BY[{name}{rng.randrange(2)}]=${number} {number}=${{BY[{rng.choice(NAMES)}{rng.randrange(2)}]:-1}}",
                f"BY[k$KIND]+={rng.choice('12')} {number}=${{#BY[@]}}",
                f"unset 'BY[{name}0]'; {number}=$(( ${{#BY[k$KIND]}} + 1 ))",
                f"ROW=($TP 2 4 \"$PP\") ROW[{rng.randrange(5)}]=2; {number}=${{ROW[{rng.choice(['1', '-1', 'MBS', '$FLAG', 'MBS - 1', '$((FLAG+1))'])}]:-1}}",
                f"ROW=(1 2 4); ROW=(${{ROW[@]:{rng.randrange(1, 3)}}} $MBS); {number}=${{ROW[0]:-1}}",
                f"(( {number} {rng.choice(['= 2', '+= 1', '-= 1', '*= 2', '++', '<<= 1', '|= 1', '^= 3'])} )); {number}=$(( {number} < 1 ? 1 : {number} ))",
                f"(( {number} > 1 {rng.choice(['&&', '||'])} ({rng.choice(NUMBERS)} = 2) )); COUNT=$((++COUNT))",
                f"let {number}=4/2 COUNT++; {number}=$(( (COUNT & 1) + ({number} >> 1) + (010 == 8) ))",
                f"{number}=$(( ROW[1] > 1 ? 2 : 1, COUNT++ > 2 ? 2 : 1 ))",
                f"declare -i WHOLE={rng.choice(['2', '1+1', '3-2'])}; WHOLE+={rng.choice('12')}; WHOLE=WHOLE*2; {number}=$WHOLE",
                f"COUNT=$((COUNT + 1)) {number}=$(( COUNT > 2 ? 2 : 1 ))",
                f"{number}=$(echo {rng.choice(['a2 | tr a-c 1-2', 'b-1 | tr -d a-z-', '$TP | tr 124 241', 'a1b2 | tr -d ab'])}); {number}=$(( {number} > 2 ? 2 : 1 ))",
                f"KIND=$(echo $KIND-x | sed {rng.choice(['s/-x$//', 's/-/_/g', 's/^fp/bf/', 's/8x-//', chr(39) + 's/fp8/16/' + chr(39)])})",
                f"ROW=({{1..{rng.randrange(1, 5)}}} $MBS); {number}=${{#ROW[@]}} {number}=${{ROW[{rng.randrange(2)}]}}",
                f"{number}=$(printf {rng.choice(['%d 2', '%s $TP', '1', '%s%s 1 2'])}); {number}=$(( {number} > 2 ? 2 : 1 ))",
            ])
        return rng.choice([
            f"{name}={rng.choice(VALUES[name])}",
            f"{name}={rng.choice(VALUES[name])}",
            f'ARGS="$ARGS {rng.choice(LISTED)}"',
            f"LIST+=({rng.choice(LISTED)})",
            f"export {name}={rng.choice(VALUES[name])}",
        ])

    def case(self, indent):
        name = self.rng.choice(NAMES)
        self.add(indent, f'case "${name}" in')
        for pattern in self.rng.sample(["1", "2 | 4", '"fp8"|bf16', "[0-9]", "fp?", "moe*", "''"], self.rng.randint(1, 4)):
            self.add(indent + 1, f"{self.rng.choice(['', '('])}{pattern})")
            self.body(indent + 2)
            self.add(indent + 2, ";;")
        if self.rng.random() < 0.5:
            self.add(indent + 1, f"*) {self.assign()} ;;")
        self.add(indent, "esac")

    def branches(self, indent):
        self.add(indent, f"if {self.test()}; then")
        self.body(indent + 1)
        while self.rng.random() < 0.3:
            self.add(indent, f"elif {self.test()}")
            self.add(indent, "then")
            self.body(indent + 1)
        if self.rng.random() < 0.5:
            self.add(indent, "else # otherwise")
            self.body(indent + 1)
        self.add(indent, "fi")

    def inside(self, indent, leave):
        """The body of a loop or function, which may be left by LEAVE."""
        self.body(indent)
        if self.rng.random() < 0.4:
            self.add(indent, f"{self.test()} && {self.rng.choice(leave)}")
            self.body(indent)

    def counted(self, indent):
        rng = self.rng
        kind = rng.randrange(6)
        if kind == 0:
            self.add(indent, "for each in 1 2 4; do")
            self.add(indent + 1, f"[ $each = {rng.choice('124')} ] && TP=$each")
        elif kind == 1:
            self.add(indent, f"N={rng.randint(1, 3)}")
            self.add(indent, "while (( N > 0 )); do")
            self.add(indent + 1, "N=$((N - 1))")
        elif kind == 4:
            self.add(indent, f"for (( i{self.loops} = {rng.randrange(2)}; i{self.loops} < {rng.choice(['2', '3', 'TP', '$PP'])}; {rng.choice(['i{0}++', 'i{0} += 2', '++i{0}'])} )); do".replace("{0}", str(self.loops)))
            self.add(indent + 1, f"[ $i{self.loops} = 1 ] && MBS=$((i{self.loops} + 1))")
        elif kind == 5:
            self.add(indent, f"for each in {rng.choice(['{1..3}', '4 {2..1}', '{0..4..2}'])}; do")
            self.add(indent + 1, "[ $each = 2 ] && PP=$each")
        elif kind == 2:
            self.add(indent, "while [[ $# -gt 0 ]]; do")
            self.add(indent + 1, f"case $1 in {rng.choice('124')}) TP=$1 ;; fp*) KIND=$1 ;; esac")
            self.add(indent + 1, "shift")
        else:
            self.add(indent, 'for each in "${LIST[@]}" --seed; do')
            self.add(indent + 1, "[[ $each == --o* ]] && MBS=2")
        self.add(indent + 1, "GUARD=$((GUARD + 1)); (( GUARD < 40 )) || break # it ends, whatever the rest does")
        self.loops += 1
        self.inside(indent + 1, ["break", "continue"] + ["break 2", "continue 2"] * (self.loops > 1))
        self.loops -= 1
        self.add(indent, "done")

    def function(self, indent):
        rng = self.rng
        self.functions += 1
        name = f"run_{self.functions}"
        self.add(indent, rng.choice([f"{name}() {{", f"function {name} {{", f"{name} ()\n{{"]))
        if rng.random() < 0.5:
            self.add(indent + 1, f"local {rng.choice(NAMES)}=${{1:-2}}")
        self.add(indent + 1, f"{rng.choice(NUMBERS)}=${{{rng.randint(1, 3)}:-1}} {rng.choice(NUMBERS)}=${{EXTRA:-1}}")
        self.inside(indent + 1, ["return", "return 1"])
        self.add(indent, "}")
        for _ in range(rng.randint(0, 2)):
            before = rng.choice(["", "", "EXTRA=2 "])
            self.add(indent, f"{before}{name} {' '.join(rng.choice(['1', '2', '$TP', '4']) for _ in range(rng.randint(0, 3)))}")

    def group(self, indent):
        opens, ends = self.rng.choice(["{}", "()", "{}"])
        self.add(indent, opens)
        self.inside(indent + 1, ["exit"] if opens == "(" else ["true"])
        self.add(indent, ends + self.rng.choice(["", "", " | cat", " 2>&1 | cat", " >/dev/null"]))

    def apart(self):
        """Lists that are left to run or are one side of a pipe, and a loop over what a command prints."""
        rng = self.rng
        number = rng.choice(NUMBERS)
        return rng.choice([
            f"for {number} in $(seq {rng.choice(['2', '1 2', '$MBS'])}); do :; done",
            f"set_{number}() {{ {number}=2; }}; {{ set_{number} {rng.choice(['', '| true', '&', '&& true', '2>&1 | true'])}\n}}",
            f"{{ {number}=2 {rng.choice(['&', '| true', '; true'])}\n}}",
        ])

    def loop(self, indent):
        self.add(indent, f"for each in {' '.join(self.rng.sample('abc', self.rng.randint(1, 3)))}; do")
        self.body(indent + 1)
        self.add(indent, "done")

    def statement(self, indent):
        rng = self.rng
        draw = rng.random()
        if draw < 0.35 or indent > 3:
            self.add(indent, self.assign())
        elif draw < 0.5:
            self.add(indent, f"{self.test()} {rng.choice(['&&', '||'])} {self.assign()}")
        elif draw < 0.55:
            self.add(indent, f"{self.test()} && {self.assign()} || {self.assign()}")
        elif draw < 0.63:
            self.case(indent)
        elif draw < 0.7:
            self.counted(indent)
        elif draw < 0.74:
            self.group(indent)
        elif draw < 0.77:
            self.add(indent, self.apart())
        elif draw < 0.82 and not indent:
            self.function(indent)
        elif draw < 0.84 and not self.sure:
            self.loop(indent)
        elif draw < 0.87 and not self.sure:
            self.add(indent, f"{self.test()} && {{ {self.assign()}; {self.assign()}; }}")
        else:
            self.branches(indent)

    def body(self, indent):
        for _ in range(self.rng.randint(1, 2)):
            self.statement(indent)

    def text(self):
        for _ in range(self.rng.randint(2, 6)):
            self.statement(0)
        start = self.rng.choice(["", "", "TP=4 "])
        start += ("torchrun pretrain_gpt.py --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MBS"
                 ' --global-batch-size 256 --seq-length 8192 $ARGS "${LIST[@]}"')
        if not self.call and self.rng.random() < 0.2: # nothing sets it, and it is no word or an empty one
            start += self.rng.choice([" $MORE_ARGS", " $MORE_ARGS --bf16", ' "$MORE_ARGS"'] if not self.sure else [" $MORE_ARGS"])
        draw = self.rng.random()
        if draw > 0.9: # the same layout, started again
            self.add(0, start + " --seed 1")
            self.add(0, start + " --seed 2")
        elif draw < 0.3:
            self.add(0, f"if {self.test()}; then")
            self.add(1, start + " --fp8-format hybrid")
            self.add(0, "else")
            self.add(1, start)
            self.add(0, "fi")
        else:
            self.add(0, start)
        if self.sure or self.ends: # whose names are the script's own, then
            self.add(0, " ".join(f"LATER_{name}=1" for name in NAMES))
        return "\n".join(self.lines) + "\n"


def imported(program, path, call=None):
    done = subprocess.run([program, "megatron", "llama-8b", "32", path] + [call] * bool(call), capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "refused: " + done.stderr.strip()


def main():
    program, folder, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    script, started = os.path.join(folder, "drawn.sh"), os.path.join(folder, "started")
    read = refused = wrong = decided = 0
    for i in range(seed, seed + count):
        drawn = Script(i)
        text = drawn.text()
        with open(script, "w") as file:
            file.write(text)
        if os.path.exists(started):
            os.remove(started)
        env = dict(os.environ, STARTED=started, SLURM_NNODES=drawn.lines[1][-1])
        start = ["bash", script] + drawn.given
        if drawn.call:
            env.update([drawn.call.split()[0].split("=")])
        subprocess.run(start, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        want = imported(program, started) if os.path.exists(started) else "refused: nothing is started"
        got = imported(program, script, drawn.call)
        if want.startswith("refused") and got.startswith("refused"): # as of a micro-batch of 0
            got = want
        decided += drawn.sure
        if got == want:
            read += 1
        elif got.startswith("refused") and not drawn.sure:
            refused += 1
        else:
            wrong += 1
            print(f"# seed {i}: the script {got}; bash {want}\n# " + text.replace("\n", "\n# "))
    print(read, refused, wrong, decided)


main()
