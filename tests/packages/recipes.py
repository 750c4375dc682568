#!/usr/bin/env python3
"""recipes.py SOURCE SPACK EASYBUILD SHA256 URL: run the two recipes, which are Python, with names of Spack and EasyBuild that note
how they were called, and compare what they say with configure.ac. The RPM spec and debian/control, too. Prints TAP."""
import os, re, sys, types

source, spack_path, easybuild_path, sha256, url = sys.argv[1:]


def read(path):
    with open(os.path.join(source, path)) as f:
        return f.read()


configure = read("configure.ac") + read("m4/partune.m4")
version = re.search(r"AC_INIT\(\[partune\], \[([^]]*)\]", configure).group(1)
# Without those of tests and benchmarks, and the MPI that takes the place of MPICH.
wanted = {module: minimum or None for module, minimum in
          re.findall(r"PT_(?:MODULE|OPTIONAL)\(\[\w+\],\s*\[([\w-]+)(?: >= ([\d.]+))?\]", configure) if module not in ("cmocka", "dnnl", "ompi-c")}
programs = set(re.findall(r"^bin_PROGRAMS \+= (\S+)", "".join(
    read(f"{folder}/Makemodule.am") for folder in ("tuner", "trainer")), re.M))


def spack():
    """The recipe's calls: (directive, arguments, keywords), and its class."""
    calls, module = [], types.ModuleType("spack.package")

    def directive(name):
        module.__dict__[name] = lambda *words, **more: calls.append((name, words, more))

    for name in ("version", "variant", "depends_on", "conflicts", "license", "maintainers"):
        directive(name)
    builder = types.ModuleType("spack_repo.builtin.build_systems.autotools")
    builder.AutotoolsPackage = type("AutotoolsPackage", (), {})
    parts = builder.__name__.split(".")
    known = {".".join(parts[:n]): types.ModuleType(".".join(parts[:n])) for n in range(1, len(parts))}
    sys.modules.update(known, **{"spack": types.ModuleType("spack"), "spack.package": module, builder.__name__: builder})
    names = {"__name__": "package"}
    with open(spack_path) as f:
        exec(compile(f.read(), spack_path, "exec"), names)
    return calls, names["Partune"]


def easybuild():
    names = {"SOURCE_TAR_XZ": "%(name)s-%(version)s.tar.xz"}
    with open(easybuild_path) as f:
        text = f.read()
    before = set(names)
    exec(compile(text, easybuild_path, "exec"), names)
    return {k: v for k, v in names.items() if k not in before and not k.startswith("__")}


def numbers(text):
    return [int(part) for part in text.split(".")]


calls, recipe = spack()
file = easybuild()
results = []


def check(name, got, want):
    results.append((name, got == want, f"{got!r}, not {want!r}"))


# Spack's names of the modules; those of EasyBuild differ by case alone, but for two.
spack_name = {"libcurl": "curl", "sqlite3": "sqlite", "zlib": "zlib-api", "libpcre2-8": "pcre2", "libutf8proc": "utf8proc"}
links = {}
for directive, words, more in calls:
    if directive == "depends_on" and "type" not in more:
        match = re.fullmatch(r"([\w-]+)(?:@([\d.]+):)?(\+\w+)?", words[0])
        assert match, f"{words[0]} is no spec"
        links.setdefault(match.group(1), match.group(2))
check("Spack: the version and checksum of the archive", [c for c in calls if c[0] == "version"], [("version", (version,), {"sha256": sha256})])
check("Spack: it is fetched from there", recipe.url, url)
check("Spack: its libraries are configure's, as new at least", links, {spack_name.get(m, m): v for m, v in wanted.items()})


class Spec:
    def __init__(self, trainer):
        self.trainer = trainer

    def satisfies(self, text):
        assert text == "+trainer", text
        return self.trainer


def arguments(trainer):
    made = recipe()
    made.spec = Spec(trainer)
    return made.configure_args()


check("Spack: configure's arguments", [arguments(True), arguments(False)], [[], ["--without-mpi"]])
check("Spack: variants that conditions name exist", {w for c in calls for w in re.findall(r"\+(\w+)", c[2].get("when", ""))},
      {c[1][0] for c in calls if c[0] == "variant"})
check("Spack: the recipe says what the package is", bool(recipe.__doc__), True)

# Of EasyBuild's documentation: what every file must have, and what others may.
mandatory = {"name", "version", "homepage", "description", "toolchain"}
optional = {"easyblock", "source_urls", "sources", "checksums", "builddependencies", "dependencies", "sanity_check_paths",
            "sanity_check_commands", "moduleclass"}
check("EasyBuild: every parameter is one, and none is missing", [set(file) - mandatory - optional, mandatory - set(file)], [set(), set()])
check("EasyBuild: the file is named as it looks for it", os.path.basename(easybuild_path),
      "{name}-{version}-{toolchain[name]}-{toolchain[version]}.eb".format(**file))
check("EasyBuild: the version and checksum of the archive", [file["version"], file["checksums"]], [version, [sha256]])
check("EasyBuild: it is fetched from there", file["source_urls"][0] + file["sources"][0] % file, url)
easy = {name.lower(): v for name, v in file["dependencies"]}
easy = {{"curl": "libcurl", "sqlite": "sqlite3", "pcre2": "libpcre2-8", "utf8proc": "libutf8proc"}.get(name, name): v for name, v in easy.items()}
check("EasyBuild: its libraries are configure's", set(easy), set(wanted))
check("EasyBuild: and as new", [m for m, v in wanted.items() if v and numbers(easy[m]) < numbers(v)], [])
check("EasyBuild: every program is looked for", {f[4:] for f in file["sanity_check_paths"]["files"]}, programs)

spec = dict(re.findall(r"^BuildRequires: +pkgconfig\(([\w-]+)\)(?: >= ([\d.]+))?", read("packaging/rpm/partune.spec.in"), re.M))
spec["mpich"] = re.search(r"^BuildRequires: +mpich-devel >= ([\d.]+)", read("packaging/rpm/partune.spec.in"), re.M).group(1)
spec.pop("cmocka")
check("RPM: its libraries are configure's, as new", {m: v or None for m, v in spec.items()}, wanted)
control = read("debian/control")
debian = dict(re.findall(r"^ +(lib[\w-]+|nettle|zlib1g)-dev(?: \(>= ([\d.]+)\))?", control, re.M))
debian_name = {"jansson": "libjansson", "libuv": "libuv1", "libcurl": "libcurl4-openssl", "sqlite3": "libsqlite3", "zlib": "zlib1g",
               "openblas": "libopenblas", "mpich": "libmpich", "libpcre2-8": "libpcre2", "sentencepiece": "libsentencepiece"}
check("Debian: its libraries are configure's", set(debian) - {"libcmocka"}, {debian_name.get(m, m) for m in wanted})

print(f"1..{len(results)}")
for n, (name, right, why) in enumerate(results, 1):
    print(f"{'ok' if right else 'not ok'} {n} - {name}")
    if not right:
        print(f"#   {why}")
sys.exit(not all(right for _, right, _ in results))
