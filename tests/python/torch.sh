# Sourced by tests that need PyTorch: $python is one that has it, since the first in PATH may be another than Debian's.
for python in python3 /usr/bin/python3 ''; do
    [ -n "$python" ] || { echo "1..0 # SKIP no python3 here has PyTorch (python3-torch)"; exit 0; }
    "$python" -c 'import torch.distributed as d; assert d.is_gloo_available() if hasattr(d, "is_gloo_available") else d.is_available()' 2>/dev/null && break
done
