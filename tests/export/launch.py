#!/usr/bin/env python3
"""launch.py FILES FOLDER: execute the job scripts that dump wrote into FILES, in FOLDER, with stand-ins for the programs that
they start, and look at what those were given: the exported file itself, in the words by which its trainer takes it. Prints TAP,
one line a wrapper and target.

launch.py --titan FACTS MODULE CONFIG and launch.py --bridge FACTS FILE ARGUMENT...: read a file as that trainer does, in a process
of its own, and print what it makes of the layout."""
import importlib, json, os, re, runpy, subprocess, sys, tempfile, tomllib, types

import standins

try:
    import yaml
except ImportError:
    yaml = None

# Of every program: how it was called, on a line, unless it was asked for its version. A launcher then runs the command of its
# second node.
TRAINER = """#!{python}
import json, os, sys
if sys.argv[1:] == ["--version"]:
    sys.exit(print(os.environ.get("MPI_VERSION", "HYDRA build details:\\n    Version:  4.0.2")))
with open({seen!r}, "a") as f:
    f.write(json.dumps({{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd()}}) + "\\n")
"""
LAUNCHER = TRAINER + """
at = sys.argv.index("bash") if "bash" in sys.argv else sys.exit(0)
os.environ.update(SLURM_NODEID="1", PMI_RANK="1", SLURM_NTASKS="2")
os.execvp("bash", sys.argv[at:])
"""
ENVIRONMENT = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "n[1-2]", "PBS_JOBID": "17[3].head", "MEGATRON": "/m", "DATA_ARGS": "--mock-data",
               "TRAIN": "train.py --mine 1", "TRAIN_ARGS": "train.train_iters=7", "RECIPE": "a_recipe",
               "TORCHTITAN_RECIPE": "made_up:a_recipe"}


# ---- as the trainers read the files ----

def read_titan(facts, module, config):
    """--module is imported, after its config_registry was tried, and --config called without arguments."""
    sys.modules.update(standins.titan_modules(facts, standins.titan_recipe(facts, [])))
    for name in (f"{module}.config_registry", module):
        try:
            made = getattr(importlib.import_module(name), config)()
            break
        except ImportError:
            continue
    return {"file": sys.modules[module].__file__, "tp": made.parallelism.tensor_parallel_degree,
            "pp": made.parallelism.pipeline_parallel_degree, "cp": made.parallelism.context_parallel_degree}


def read_bridge(facts, file, arguments):
    """The program is run: it looks its recipe up, puts the overrides on it, and trains."""
    made = {}

    def module(name, **contents):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(contents)

    def override(config, cli_overrides):
        made["overrides"] = cli_overrides
        return config

    def pretrain(config, forward_step_func):
        model = config.model
        made.update(tp=model.tensor_model_parallel_size, pp=model.pipeline_model_parallel_size, cp=model.context_parallel_size)

    sys.modules.update(standins.bridge_modules())
    recipes = types.SimpleNamespace(a_recipe=lambda: standins.bridge_recipe(facts, standins.Provider))
    sys.modules["megatron.bridge"].recipes = recipes
    module("megatron.bridge.training.gpt_step", forward_step=None)
    module("megatron.bridge.training.pretrain", pretrain=pretrain)
    module("megatron.bridge.training.utils")
    module("megatron.bridge.training.utils.omegaconf_utils", process_config_with_overrides=override)
    sys.argv = [file, *arguments]
    runpy.run_path(file, run_name="__main__")
    return made


if sys.argv[1] in ("--titan", "--bridge"):
    with open(sys.argv[2]) as f:
        known = json.load(f)
    print(json.dumps(read_titan(known, *sys.argv[3:]) if sys.argv[1] == "--titan" else read_bridge(known, sys.argv[3], sys.argv[4:])))
    sys.exit(0)

files, folder = sys.argv[1], os.path.realpath(sys.argv[2])
seen_path = os.path.join(folder, "seen")


def programs():
    """Stand-ins in a folder for PATH."""
    where = os.path.join(folder, "bin")
    os.makedirs(where)
    texts = {"torchrun": TRAINER, "accelerate": TRAINER, "srun": LAUNCHER, "mpiexec": LAUNCHER, "mpirun": LAUNCHER}
    texts = {name: text.format(python=sys.executable, seen=seen_path) for name, text in texts.items()}
    texts["scontrol"] = "#!/bin/sh\nprintf 'n1\\nn2\\n'\n"
    for name, text in texts.items():
        with open(os.path.join(where, name), "w") as f:
            f.write(text)
        os.chmod(os.path.join(where, name), 0o755)
    return where


def execute(script, where, without=(), more=None):
    """Exit status and errors of the job, and the calls that were noted."""
    os.makedirs(where, exist_ok=True)
    open(seen_path, "w").close()
    nodes = os.path.join(where, "nodes")
    with open(nodes, "w") as f:
        f.write("n1\nn2\n")
    env = {k: v for k, v in ENVIRONMENT.items() if k not in without}
    env |= {"PATH": bin_folder + ":" + os.environ["PATH"], "PBS_O_WORKDIR": where, "PBS_NODEFILE": nodes, "PYTHONDONTWRITEBYTECODE": "1"}
    env |= more or {}
    ended = subprocess.run(["bash", "-c", script], cwd=where, env=env, text=True, capture_output=True)
    with open(seen_path) as f:
        return ended, [json.loads(line) for line in f]


def again(how, call, facts_path, *arguments):
    """This program in the environment of CALL, where it finds no more than that says."""
    env = {k: v for k, v in call["env"].items() if k != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, __file__, how, facts_path, *arguments], cwd=call["cwd"], env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def flat(value, prefix=""):
    for key, v in value.items():
        if isinstance(v, dict):
            yield from flat(v, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", v


# ---- what each target must have been given; WORDS are those after the launcher of its processes' own ----

def read(call, path):
    with open(os.path.join(call["cwd"], path)) as f:
        return f.read()


def degrees(facts):
    return {k: facts["layout"][k] for k in ("tp", "pp", "cp")}


def check_titan(words, call, facts, facts_path, plain):
    module = words[words.index("--module") + 1]
    assert words == ["-m", "torchtitan.train", "--module", module, "--config", "partune_layout", "train.train_iters=7"], words
    assert module.isidentifier(), module
    got = again("--titan", call, facts_path, module, "partune_layout")
    assert open(got.pop("file")).read() == plain
    assert got == degrees(facts), got


def check_toml(words, call, facts, facts_path, plain):
    assert words[:3] == ["-m", "torchtitan.train", "--job.config_file"] and words[4:] == ["train.train_iters=7"], words
    assert read(call, words[3]) == plain
    assert tomllib.loads(plain)["parallelism"]["tensor_parallel_degree"] == facts["layout"]["tp"]


def check_bridge(words, call, facts, facts_path, plain):
    assert words[1:] == ["a_recipe", "train.train_iters=7"], words
    assert read(call, words[0]) == plain
    got = again("--bridge", call, facts_path, *words)
    assert got == dict(degrees(facts), overrides=["train.train_iters=7"]), got


def check_megatron(words, call, facts, facts_path, plain):
    several = ("--recompute-modules", "--cuda-graph-modules")  # nargs="*" in Megatron-LM; other values are one word each
    lines = [line for line in plain.splitlines() if not line.startswith("#")]
    listed = [w for line in lines for w in line.split(" ", -1 if line.startswith(several) else 1)]
    assert words == ["/m/pretrain_gpt.py", *listed, "--mock-data"], words


def check_script(words, call, facts, facts_path, plain):
    assert words[0] == "/m/pretrain_gpt.py" and words[words.index("--tensor-model-parallel-size") + 1] == str(facts["layout"]["tp"])


def check_deepspeed(words, call, facts, facts_path, plain):
    assert words[:4] == ["train.py", "--mine", "1", "--deepspeed_config"] and len(words) == 5, words
    assert json.loads(read(call, words[4])) == json.loads(plain)


def check_accelerate(words, call, facts, facts_path, plain):
    assert words[:2] == ["launch", "--config_file"] and words[-3:] == ["train.py", "--mine", "1"], words
    assert read(call, words[2]) == plain


def check_smp(words, call, facts, facts_path, plain):
    assert words == ["train.py", "--mine", "1"], words
    given = json.loads(call["env"]["SM_HP_MP_PARAMETERS"])
    assert given == {k: v for k, v in json.loads(plain).items() if k != "_partune"} and given, given


def check_hyperpod(words, call, facts, facts_path, plain):
    assert words[:3] == ["train.py", "--mine", "1"] and all(w.startswith("++") for w in words[3:]), words
    given = dict(w[2:].split("=", 1) for w in words[3:])
    assert given["model.tensor_model_parallel_degree"] == str(facts["layout"]["tp"]), given
    assert "SLURM_NTASKS" not in call["env"]
    if yaml:
        written = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in flat(yaml.safe_load(plain))}
        assert given == written, f"{given} is not {written}"


checks = {"torchtitan": check_titan, "torchtitan-toml": check_toml, "megatron-bridge": check_bridge, "megatron": check_megatron,
          "megatron-script": check_script, "deepspeed": check_deepspeed, "accelerate": check_accelerate, "smp": check_smp,
          "hyperpod": check_hyperpod}
# What the job cannot know is asked for before anything starts.
asks = {"torchtitan-toml": "TRAIN_ARGS", "megatron-bridge": "RECIPE", "megatron": "MEGATRON", "deepspeed": "TRAIN", "accelerate": "TRAIN",
        "smp": "TRAIN", "hyperpod": "TRAIN"}


def of_kubernetes(text, where):
    """The launcher's command, with the volume in WHERE. A container's volume has a name without spaces; WHERE may have some."""
    config, job = yaml.safe_load_all(text)
    os.makedirs(where, exist_ok=True)
    for name, contents in config["data"].items():
        with open(os.path.join(where, name), "w") as f:
            f.write(contents)
    container = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    mount = container["volumeMounts"][0]["mountPath"]
    volume = os.path.join(volumes.name, os.path.basename(where))
    os.symlink(where, volume)
    return container["args"][0].replace(mount + "/", volume + "/").replace("=\"" + mount, "=\"" + volume)


def body(path):
    """The plain file, as it stands within a job."""
    with open(path) as f:
        return re.sub(r"\A#!.*\n", "", f.read())


def check_containers(wrapper, script, where, plain):
    """The job in an image: the trainer is given the same words, by a launcher that has the image, its mounts and its directory."""
    mounts = f"{where}:{where},/data:/data"
    wanted = {"SIF_IMAGE": ["apptainer", "exec", "--nv", "--pwd", where, "--bind", mounts, "a b.sif"]}
    if wrapper == "slurm":
        wanted["PYXIS_IMAGE"] = ["--container-image=a b.sif", f"--container-workdir={where}", f"--container-mounts={mounts}"]
    for name, words in wanted.items():
        ended, calls = execute(script, where, more={name: "a b.sif", "CONTAINER_MOUNTS": "/data:/data"})
        assert ended.returncode == 0, ended.stderr
        argv = calls[0]["argv"]
        end = argv.index("bash")
        assert argv[end - len(words):end] == words, argv
        assert calls[-1]["argv"] == plain, calls[-1]["argv"]
    amd = script.replace("/dev/kfd", "/dev/null")  # there as on a node with AMD's driver
    _, calls = execute(amd, where, more={"SIF_IMAGE": "a b.sif"})
    assert calls[0]["argv"][calls[0]["argv"].index("exec") + 1] == "--rocm", calls[0]["argv"]


def check(wrapper, target, number, asked):
    """One job; ASKED: also without what it has to ask for."""
    path = lambda what: os.path.join(files, f"{number}.{what}")
    where = os.path.join(folder, f"{number}.{wrapper}.{target}")
    with open(path("facts")) as f:
        facts = json.load(f)
    with open(path(f"{wrapper}+{target}")) as f:
        script = f.read()
    if wrapper == "mpijob":
        script = of_kubernetes(script, where)
    ended, calls = execute(script, where)
    assert ended.returncode == 0, ended.stderr
    started, call = calls
    assert wrapper != "slurm" or "--kill-on-bad-exit=1" in started["argv"], started["argv"]
    words = call["argv"][1:]
    rank = "--machine_rank" if target == "accelerate" else "--node-rank"
    assert words[words.index(rank) + 1] == "1", words
    if target == "accelerate":
        del words[3:9]
    else:
        del words[:words.index("--master-port") + 2]
    checks[target](words, call, facts, path("facts"), body(path(target)))
    if asked and wrapper != "mpijob":
        check_containers(wrapper, script, where, call["argv"])
    if asked and target in asks:
        ended, calls = execute(script, where, {asks[target]})
        assert ended.returncode and len(calls) == 1 and asks[target] in ended.stderr, ended.stderr


volumes = tempfile.TemporaryDirectory(prefix="partune-")
bin_folder = programs()
cases = [(w, t) for w in ("slurm", "pbs", "mpijob") for t in sorted(checks)]
print(f"1..{len(cases)}")
for n, (wrapper, target) in enumerate(cases, 1):
    name = f"{wrapper}+{target}: the job runs the layout"
    if wrapper == "mpijob" and not yaml:
        print(f"ok {n} - {name} # SKIP there is no python3-yaml")
        continue
    numbers = sorted(f.split(".")[0] for f in os.listdir(files) if f.endswith(f".{wrapper}+{target}"))
    bad = None if numbers else "no file was written"
    for number in numbers[::len(numbers) // 3 + 1]:
        try:
            check(wrapper, target, number, number == numbers[0])
        except Exception as e:  # noqa: BLE001 - whatever went wrong is the finding
            bad = f"{number}: {type(e).__name__}: {e}"
            break
    print(f"{'not ok' if bad else 'ok'} {n} - {name}")
    if bad:
        print("#   " + bad.replace("\n", "\n#   "))
