"""The resources of the HTTP API as types. Made from /openapi.json by python/generate_types.py."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union


class Alive(TypedDict):
    ok: bool
    version: str


BaselineImport = TypedDict(
    "BaselineImport",
    {
        "import": 'Literal["megatron", "deepspeed", "torchtitan"]',
        "text": 'str',
        "world": 'int',
        "cluster": 'str',
        "call": 'str',
    },
    total=False,
)


class BatchPlan(TypedDict):
    global_batch: int
    best: Optional[PlanItem]
    device_s_per_mtoken: Optional[float]


class BatchStanding(TypedDict):
    global_batch: int
    best: Optional[Standing]
    device_s_per_mtoken: Optional[float]
    trials: int
    device_s: Optional[float]


class _Campaign(TypedDict):
    simulated: bool
    warm_start: Optional[Dict[str, Any]]
    id: str
    name: str
    state: Literal["running", "paused", "verifying", "done", "cancelled", "failed"]
    reason: Optional[str]
    created: str
    started: Optional[str]
    ended: Optional[str]
    model: Model
    cluster: Union[Cluster, List[Cluster]]
    workload: Workload
    objective: str
    trainer: str
    launcher: str
    fidelity: Union[Literal["full"], List[Fidelity]]
    space: Optional[Dict[str, Any]]
    progress: Progress
    best: Optional[Standing]
    baseline: Optional[Standing]
    baseline_rule: Literal["default", "naive", "given"]
    verify: Optional[Verify]
    tags: List[str]
    notes: str
    owner: str
    priority: int
    trace_id: str
    spec: Dict[str, Any]


class Campaign(_Campaign, total=False):
    batches: List[BatchStanding]
    worlds: List[WorldStanding]
    clusters: List[ClusterStanding]


class CampaignPatch(TypedDict, total=False):
    name: str
    notes: str
    tags: List[str]
    priority: int


class _CampaignSpec(TypedDict):
    name: str
    model: ModelOrName
    workload: Workload


class CampaignSpec(_CampaignSpec, total=False):
    cluster: ClusterOrList
    space: Dict[str, Any]
    baseline: Union[Literal["default", "naive"], BaselineImport, Dict[str, Any]]
    objective: Literal["tokens_per_s", "tokens_per_s_per_device", "tokens_per_joule", "tokens_per_cost"]
    constraints: Dict[str, Any]
    budget: Dict[str, Any]
    trial: Dict[str, Any]
    search: Dict[str, Any]
    launcher: Dict[str, Any]
    trainer: str
    rules: Literal["partune", "megatron", "torchtitan", "deepspeed", "any"]
    stack: Union[str, Dict[str, Any]]
    tags: List[str]
    notes: str
    priority: int


class _CampaignSummary(TypedDict):
    simulated: bool
    warm_start: Optional[Dict[str, Any]]
    id: str
    name: str
    state: Literal["running", "paused", "verifying", "done", "cancelled", "failed"]
    reason: Optional[str]
    created: str
    started: Optional[str]
    ended: Optional[str]
    model: Model
    cluster: Union[Cluster, List[Cluster]]
    workload: Workload
    objective: str
    trainer: str
    launcher: str
    fidelity: Union[Literal["full"], List[Fidelity]]
    space: Optional[Dict[str, Any]]
    progress: Progress
    best: Optional[Standing]
    baseline: Optional[Standing]
    baseline_rule: Literal["default", "naive", "given"]
    verify: Optional[Verify]
    tags: List[str]
    notes: str
    owner: str
    priority: int
    trace_id: str


class CampaignSummary(_CampaignSummary, total=False):
    batches: List[BatchStanding]
    worlds: List[WorldStanding]
    clusters: List[ClusterStanding]


class Check(TypedDict):
    legal: bool
    layout: Layout
    text: str
    rules: List[Rule]
    memory: Optional[Dict[str, float]]
    cost: Optional[Dict[str, float]]
    mfu: Optional[float]
    fits: bool
    offered: float
    why: Optional[Why]


class _CheckRequest(TypedDict):
    model: ModelOrName
    workload: Workload
    layout: Dict[str, Any]


class CheckRequest(_CheckRequest, total=False):
    cluster: ClusterOrName
    trainer: str
    rules: Literal["partune", "megatron", "torchtitan", "deepspeed", "any"]
    stack: Union[str, Dict[str, Any]]
    constraints: Dict[str, Any]
    against: Dict[str, Any]


class _Cluster(TypedDict):
    name: str
    nodes: int
    devices_per_node: int
    device: Device


class Cluster(_Cluster, total=False):
    host: Host
    links: List[Link]
    oversubscribe: bool
    measured: bool
    price_per_device_hour: float


class _ClusterOfParts(TypedDict):
    parts: List[ClusterOrName]


class ClusterOfParts(_ClusterOfParts, total=False):
    between: Dict[str, Any]


class ClusterStanding(TypedDict):
    cluster: str
    best: Optional[Standing]
    device_s_per_mtoken: Optional[float]
    trials: int
    device_s: Optional[float]


class CompareRequest(TypedDict, total=False):
    campaigns: List[str]
    trials: List[Dict[str, Any]]


class Comparison(TypedDict):
    simulated: bool
    mixed: bool
    kind: Literal["campaigns", "trials"]
    items: List[Dict[str, Any]]
    differs: List[str]


CompleteRequest = TypedDict(
    "CompleteRequest",
    {
        "lease": 'str',
        "events": 'List[Dict[str, Any]]',
        "from": 'int',
        "status": 'Literal["ok", "node_fail", "oom", "illegal", "numeric", "data", "io", "preempted", "crash", "comm"]',
        "tokens_per_s": 'float',
        "tokens_per_s_se": 'float',
        "peak_memory_bytes": 'float',
        "tokens_per_joule": 'float',
        "detail": 'str',
        "stdout": 'str',
        "stderr": 'str',
        "exit_code": 'int',
        "signal": 'int',
    },
    total=False,
)


class Dataset(TypedDict):
    name: str


class _Device(TypedDict):
    memory_gib: float
    memory_gbs: float


class Device(_Device, total=False):
    name: str
    kind: Literal["gpu", "cpu"]
    peak_tflops: Dict[str, Any]
    gemm_tflops: float
    gemm_tflops_fp8: float
    sustained: float
    context_gib: float
    library_gib: float
    nccl_gib: float
    busy_watts: float
    idle_watts: float


class Diagnosis(TypedDict):
    simulated: bool


class _Dsa(TypedDict):
    index_n_heads: int
    index_head_dim: int
    index_topk: int


class Dsa(_Dsa, total=False):
    indexer_loss_coef: float


class Example(TypedDict):
    name: str
    title: str
    source: str
    rows: List[Dict[str, Any]]


class _Exporter(TypedDict):
    name: str
    title: str
    version: str


class Exporter(_Exporter, total=False):
    carries: List[str]
    media_type: str


Failure = TypedDict(
    "Failure",
    {
        "class": 'str',
        "detail": 'str',
        "rank": 'Optional[int]',
        "exit_code": 'Optional[int]',
        "signal": 'Optional[int]',
    },
    total=False,
)


class Fidelity(TypedDict, total=False):
    replicas: int
    stage_layers: int
    micro_batches: int
    steps: int
    devices: int


class Heartbeat(TypedDict):
    state: Literal["held"]
    lease_s: float
    events: int


HeartbeatRequest = TypedDict(
    "HeartbeatRequest",
    {
        "lease": 'str',
        "events": 'List[Dict[str, Any]]',
        "from": 'int',
    },
    total=False,
)


class Host(TypedDict, total=False):
    memory_gib: float
    memory_gbs: float
    link_gbs: float


class Import(TypedDict):
    layout: Layout
    text: str
    global_batch: Optional[int]
    seq: Optional[int]
    ignored: List[Dict[str, Any]]


class _ImportRequest(TypedDict):
    text: str
    world: int
    model: ModelOrName


class ImportRequest(_ImportRequest, total=False):
    call: str


class Importance(TypedDict):
    simulated: bool
    shares: Dict[str, float]
    effects: Dict[str, List[Dict[str, Any]]]


class Inferred(TypedDict):
    tokens_per_s: float
    lo: float
    hi: float
    p_fits: float


class Layout(TypedDict, total=False):
    world: int
    tp: int
    sp: int
    cp: int
    cp_comm: Literal["p2p", "all-gather", "a2a", "a2a+p2p"]
    pp: int
    vp: int
    stages: str
    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "zb-v", "dualpipe-v", "dualpipe"]
    ep: int
    etp: int
    dp: int
    edp: int
    zero: int
    zero_scope: Literal["ep-aware", "plain"]
    shard: int
    micro_batch: int
    global_batch: int
    recompute: Literal["none", "selective", "full"]
    recompute_method: Literal["uniform", "block"]
    recompute_num_layers: int
    recompute_mlp: int
    recompute_moe: int
    recompute_moe_act: int
    recompute_shared_experts: int
    recompute_layernorm: int
    recompute_mla_up_proj: int
    recompute_core_attn: int
    overlap_grad_reduce: int
    overlap_param_gather: int
    overlap_p2p: int
    overlap_moe_a2a: int
    moe_dispatch: Literal["alltoall", "allgather", "deepep", "hybridep"]
    tp_overlap: int
    cuda_graphs: Literal["none", "modules", "iteration"]
    precision: Literal["fp32", "bf16", "fp8", "fp8-current", "fp8-blockwise", "mxfp8", "nvfp4"]
    fp8_param_gather: int
    grad_dtype: Literal["fp32", "bf16"]
    offload_optimizer: int
    offload_params: int
    offload_activations: int
    threads: int
    cluster: str


class _LinearAttention(TypedDict):
    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int


class LinearAttention(_LinearAttention, total=False):
    conv_kernel_dim: int


class _Link(TypedDict):
    span: Union[int, Literal["all"]]
    gbs: float


class Link(_Link, total=False):
    share: float
    per_pair: bool
    oversubscription: float
    rails: bool
    latency_us: float
    kind: str


class MadeToken(TypedDict):
    id: str
    name: str
    scope: str
    token: str


class _Mamba(TypedDict):
    heads: int
    head_dim: int
    state: int


class Mamba(_Mamba, total=False):
    groups: int
    conv: int


class _Mla(TypedDict):
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class Mla(_Mla, total=False):
    q_lora_rank: int


class _Model(TypedDict):
    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    seq: int


class Model(_Model, total=False):
    kv_heads: int
    head_dim: int
    mlp: Literal["swiglu", "gelu", "geglu", "relu2", "swiglu-clamped", "gelu-tanh"]
    norm: Literal["rmsnorm", "layernorm"]
    positions: Literal["rope", "learned", "none"]
    rope_theta: float
    norm_eps: float
    init_std: float
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    norm_bias: bool
    qk_norm: Literal["none", "head", "full", "l2"]
    parallel_block: bool
    shared_norm: bool
    pre_norms: bool
    post_norms: bool
    zero_centered_norm: bool
    attn_sinks: bool
    attn_softcap: float
    logit_softcap: float
    attn_scale: float
    attention_output_gate: bool
    attn_temperature_tuning: bool
    attn_temperature_floor: int
    attn_temperature_scale: float
    embed_scale: bool
    embedding_multiplier: float
    residual_multiplier: float
    logit_scale: float
    sliding_window: int
    attention_chunk_size: int
    global_every: int
    linear_attention_freq: int
    no_rope_freq: int
    partial_rotary_factor: float
    rope_theta_local: float
    mtp: int
    mtp_loss_coef: float
    pattern: str
    mla: Mla
    dsa: Dsa
    linear_attention: LinearAttention
    mamba: Mamba
    rope_scaling: RopeScaling
    moe: Optional[Moe]


class _Moe(TypedDict):
    experts: int
    top_k: int
    expert_ffn: int


class Moe(_Moe, total=False):
    aux_loss: Literal["sequence", "huggingface", "megatron"]
    aux_loss_coef: float
    capacity_factor: Optional[float]
    shared_ffn: int
    every: int
    dense_layers: int
    router: Literal["softmax", "sigmoid"]
    topk_norm: bool
    balance_bias: bool
    scaling: float
    n_group: int
    topk_group: int
    router_bias: bool
    shared_gate: bool
    z_loss_coef: float
    force_balance: bool
    apply_probs_on_input: bool


class _NewToken(TypedDict):
    name: str
    scope: Literal["read", "submit", "admin"]


class NewToken(_NewToken, total=False):
    expires_s: int


class OpenAPI(TypedDict):
    openapi: str
    info: Dict[str, Any]
    paths: Dict[str, Any]
    components: Dict[str, Any]


class ParetoPoint(TypedDict):
    simulated: bool
    n: int
    tokens_per_s: float
    memory_bytes: float


class _Plan(TypedDict):
    candidates: int
    legal: int
    fitting: int
    exact: bool
    items: List[PlanItem]
    excluded: List[Dict[str, Any]]
    reason: Optional[str]
    beyond: Optional[Dict[str, Any]]


class Plan(_Plan, total=False):
    batches: List[BatchPlan]
    cluster: Dict[str, Any]
    alone: List[Dict[str, Any]]


class _PlanItem(TypedDict):
    layout: Layout
    text: str
    tokens_per_s: float
    tokens_per_joule: Optional[float]
    mfu: Optional[float]
    seconds: Dict[str, float]
    memory: Dict[str, float]
    why: str
    variants: Optional[Dict[str, Any]]
    equivalents: int


class PlanItem(_PlanItem, total=False):
    placement: List[Dict[str, Any]]


class _PlanRequest(TypedDict):
    model: ModelOrName
    workload: Workload


class PlanRequest(_PlanRequest, total=False):
    cluster: Union[ClusterOrName, ClusterOfParts]
    trainer: str
    rules: Literal["partune", "megatron", "torchtitan", "deepspeed", "any"]
    stack: Union[str, Dict[str, Any]]
    constraints: Dict[str, Any]
    space: Dict[str, Any]
    fold: bool
    objective: Literal["tokens_per_s", "tokens_per_s_per_device", "tokens_per_joule", "tokens_per_cost"]
    top: int


class Prediction(TypedDict):
    simulated: bool
    tokens_per_s: Optional[float]
    n: int
    predicted: Optional[float]
    measured: Optional[float]


class _Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    pointer: Optional[str]


class Problem(_Problem, total=False):
    rules: List[Dict[str, Any]]


class Progress(TypedDict):
    simulated: bool
    trials: Optional[int]
    budget: Optional[int]
    by_state: Dict[str, int]
    device_s: Optional[float]
    cost: Optional[float]
    smaller_trials: int
    smaller_device_s: Optional[float]
    elapsed_s: Optional[float]
    eta_s: Optional[float]


ProjectRequest = TypedDict(
    "ProjectRequest",
    {
        "campaign": 'str',
        "with": 'List[str]',
        "devices": 'List[int]',
        "scaling": 'Literal["strong", "weak"]',
        "layouts": 'Literal["winner", "best"]',
        "cluster": 'ClusterOrName',
    },
    total=False,
)


class _Projection(TypedDict):
    simulated: bool
    campaign: str
    scaling: str
    device: str
    transfer: Dict[str, Any]
    base: Dict[str, Any]
    calibration: Dict[str, Any]
    rows: List[Dict[str, Any]]
    earlier: List[Dict[str, Any]]


class Projection(_Projection, total=False):
    layouts: str
    cluster: str


class Ready(TypedDict):
    ready: bool
    checks: List[Dict[str, Any]]


class _RopeScaling(TypedDict):
    kind: Literal["plain", "linear", "llama3", "yarn", "longrope"]
    factor: float


class RopeScaling(_RopeScaling, total=False):
    original_seq: int
    short_factor: List[float]
    long_factor: List[float]
    low_freq_factor: float
    high_freq_factor: float
    beta_fast: float
    beta_slow: float
    truncate: bool
    mscale: float
    mscale_all_dim: float


class Rule(TypedDict):
    rule: str
    key: Optional[str]
    detail: str


class _Run(TypedDict):
    layers: int
    global_batch: int
    layout: Layout
    text: str
    devices: int


class Run(_Run, total=False):
    tokens_per_s: Optional[float]
    tokens_per_s_se: Optional[float]
    tokens_per_s_max: Optional[float]
    mfu: Optional[float]
    step_ms: Optional[Dict[str, Any]]
    phases_ms: Optional[Dict[str, Any]]
    memory: Dict[str, Any]
    memory_bytes: Optional[float]
    loss: Optional[Dict[str, Any]]
    expert_imbalance: Optional[float]
    tokens_per_joule: Optional[float]


class _SizeRequest(TypedDict):
    model: ModelOrName
    workload: Workload


class SizeRequest(_SizeRequest, total=False):
    cluster: ClusterOrName
    trainer: str
    rules: Literal["partune", "megatron", "torchtitan", "deepspeed", "any"]
    stack: Union[str, Dict[str, Any]]
    constraints: Dict[str, Any]
    space: Dict[str, Any]
    devices: List[int]
    tokens: float
    days: float
    price: float
    marginal: float


class Sizing(TypedDict):
    items: List[Dict[str, Any]]
    fewest: Optional[int]
    fewest_sure: Optional[int]
    pays: Optional[int]


class _Stack(TypedDict):
    name: str


class Stack(_Stack, total=False):
    like: str
    source: List[str]
    runs: Dict[str, Any]
    constants: Dict[str, Any]


class _Standing(TypedDict):
    simulated: bool
    runs: int
    measured: int
    trial: int
    layout: Layout
    text: str
    tokens_per_s: float
    lo: Optional[float]
    hi: Optional[float]
    mfu: Optional[float]
    ratio: Optional[float]
    devices: int
    cost_per_mtok: Optional[float]
    tokens_per_joule: Optional[float]
    tokens_per_joule_lo: Optional[float]
    tokens_per_joule_hi: Optional[float]


class Standing(_Standing, total=False):
    memory_bytes: Optional[float]
    tied_with: List[int]


class _Step(TypedDict):
    simulated: bool
    n: int
    ms: float


class Step(_Step, total=False):
    tokens: int
    loss: Optional[float]


class _SuggestRequest(TypedDict):
    worker: str


class SuggestRequest(_SuggestRequest, total=False):
    wait_s: float
    cluster: str
    devices: int


class _Suggestion(TypedDict):
    state: Literal["trial", "wait", "done"]


class Suggestion(_Suggestion, total=False):
    reason: Optional[str]
    retry_s: float
    trial: int
    attempt: int
    lease: str
    lease_s: float
    campaign: str
    kind: str
    layout: Layout
    text: str
    config: Dict[str, Any]
    timeout_s: float
    device_memory: float
    traceparent: str


class Surface(TypedDict):
    simulated: bool
    x: Dict[str, Any]
    y: Dict[str, Any]
    mean: List[List[Optional[float]]]
    lo: List[List[Optional[float]]]
    hi: List[List[Optional[float]]]
    p_fits: List[List[Optional[float]]]


class Token(TypedDict):
    id: str
    name: str
    scope: Literal["read", "submit", "admin"]
    created: str
    expires: Optional[str]


class Trial(TypedDict):
    warning: Optional[str]
    simulated: bool
    campaign: str
    n: int
    kind: Literal["baseline", "search", "repeat", "verify"]
    state: Literal["queued", "starting", "running", "ok", "implausible", "node_fail", "cancelled", "timeout", "pruned", "hang", "oom", "illegal", "numeric", "preempted", "crash"]
    repeat_of: Optional[int]
    attempts: int
    fidelity: Optional[int]
    layout: Layout
    text: str
    why: Optional[str]
    predicted: Optional[Dict[str, Any]]
    tokens_per_s: Optional[float]
    tokens_per_s_se: Optional[float]
    mfu: Optional[float]
    step_ms: Optional[Dict[str, Any]]
    phases_ms: Optional[Dict[str, Any]]
    memory: Dict[str, Any]
    loss: Optional[Dict[str, Any]]
    expert_imbalance: Optional[float]
    tokens_per_joule: Optional[float]
    run: Optional[Run]
    inferred: Optional[Inferred]
    devices: Optional[int]
    device_s: Optional[float]
    created: str
    started: Optional[str]
    ended: Optional[str]
    seconds: Optional[float]
    failure: Optional[Failure]


class _Verify(TypedDict):
    simulated: bool
    state: str


class Verify(_Verify, total=False):
    pairs: int
    ratio: Optional[float]
    lo: Optional[float]
    hi: Optional[float]
    prediction: Optional[Dict[str, Any]]
    verdict: Optional[str]


class Why(TypedDict):
    simulated: bool
    trial: Optional[int]
    against: Optional[int]
    unit: Literal["seconds", "device_seconds", "joules", "price"]
    exact: bool
    predicted: Dict[str, Any]
    clusters: Optional[Dict[str, Any]]
    trials: Optional[Dict[str, Any]]
    classes: List[Dict[str, Any]]
    keys: List[Dict[str, Any]]


class Worker(TypedDict):
    name: str
    state: Literal["running", "waiting", "idle", "lost"]
    campaign: Optional[str]
    trial: Optional[int]
    seen: Optional[str]
    devices: int
    completed: int


class _Workload(TypedDict):
    global_batch: Union[int, List[int]]


class Workload(_Workload, total=False):
    seq: int
    precision: Literal["fp32", "bf16", "fp8", "fp8-current", "fp8-blockwise", "mxfp8", "nvfp4"]
    optimizer: Literal["adamw", "sgd", "lamb", "muon"]
    data: str
    eod: int
    reset_attention_mask: bool
    reset_position_ids: bool
    eod_mask_loss: bool


class WorldStanding(TypedDict):
    world: int
    best: Optional[Standing]
    device_s_per_mtoken: Optional[float]
    trials: int
    device_s: Optional[float]


ClusterOrList = Optional[Union[str, Dict[str, Any], List[Union[str, Dict[str, Any]]]]]
ClusterOrName = Optional[Union[str, Dict[str, Any]]]
ModelOrName = Union[str, Dict[str, Any]]
Name = str
Timeline = Union[Dict[str, Any], List[Any]]
