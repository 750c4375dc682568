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

# $meet: options of torchrun for its ranks to meet; $meet_env: a line of the trainer's section, if any. The first is the example's.
# The store of that rendezvous needs libuv since torch 2.4, and Debian's torch is built without: there it is a file of the attempt.
find_rendezvous() {
    meet='--rdzv_backend c10d --rdzv_endpoint localhost:0' meet_env=''
    if ! "$python" -c 'from torch.distributed import TCPStore; TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)' 2>/dev/null; then
        meet='--rdzv_backend c10d --rdzv_conf store_type=file --rdzv_endpoint {folder}/meet'
        meet_env='env = USE_LIBUV=0
env = TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1'
    fi
}
