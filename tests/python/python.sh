# Sourced: $python is the first interpreter that can do what a test needs; the first in PATH may lack Debian's packages.
find_python() { # code that must run
    for python in python3 /usr/bin/python3; do
        "$python" -c "$1" 2>/dev/null && return 0
    done
    return 1
}
skip() {
    echo "1..0 # SKIP $1"
    exit 0
}
with_torch() {
    find_python 'import torch.distributed as d; assert d.is_available() and d.is_gloo_available() if hasattr(d, "is_gloo_available") else d.is_available()' ||
        skip "no python3 here has PyTorch with gloo (python3-torch)"
}
