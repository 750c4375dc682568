// One trial: what it was, how it went, where its time and memory went, what it wrote.

import { campaignPath, eachPage, get, getText, trialPath } from "../lib/api.js";
import { atMostEvery, fill, h } from "../lib/dom.js";
import {
    bytes,
    counted,
    interval,
    ms,
    percent,
    ratio,
    rate,
    seconds,
    significant,
    time,
    NONE,
} from "../lib/format.js";
import { openStream } from "../lib/live.js";
import { href } from "../lib/router.js";
import {
    KINDS,
    LAYOUT_KEYS,
    LIVE_TRIAL,
    PHASES,
    PHASE_HELP,
    TRIAL_STATES,
    ordered,
} from "../lib/words.js";
import { bounds } from "../charts/best.js";
import { chartPanel } from "../charts/panel.js";
import {
    memoryBars,
    phaseStack,
    rankHeat,
    rankSpread,
    stepHistogram,
    stepTime,
    stragglers,
} from "../charts/trial.js";
import {
    failure,
    layoutChips,
    notice,
    pairs,
    panel,
    simulatedBadge,
    tile,
    tiles,
    trialBadge,
} from "../parts/parts.js";
import { copyText, saveText } from "../lib/download.js";
import { lanes } from "../charts/lanes.js";
import { thin } from "../charts/thin.js";
import { meshView } from "../charts/mesh.js";
import { logPanel } from "../parts/log.js";

const KEEP_STEPS = 2000;

function trialTiles() {
    const speed = tile("Throughput", "global batch times sequence length over the median step");
    const gain = tile("vs baseline");
    const step = tile(
        "Step time",
        "median of the steps after the warm-up, and the half-width of its 95 % interval",
    );
    const mfu = tile(
        "MFU",
        "model FLOP utilisation: 3 × forward, no recompute, over the peak of all devices",
    );
    const memory = tile("Memory of the worst rank", "what it took; planned below");
    const loss = tile("Loss, nats a token", "of the last step, and of the first");
    const took = tile("Took");
    return {
        element: tiles(speed, gain, step, mfu, memory, loss, took),
        update(t, campaign) {
            const b = bounds(t);
            speed.set(
                rate(t.tokens_per_s),
                b ? `${t.simulated ? "simulated, " : ""}95 %: ${interval(...b)}` : `expected ${rate(t.predicted?.tokens_per_s)}`,
            );
            const base = campaign.baseline?.tokens_per_s;
            gain.set(
                base && t.tokens_per_s ? ratio(t.tokens_per_s / base) : NONE,
                base ? `baseline ${rate(base)}` : "",
            );
            const s = t.step_ms ?? {};
            step.set(
                ms(s.median),
                s.median
                    ? [
                          `± ${ms(s.ci95)}`,
                          s.p10 && `p10 ${ms(s.p10)}`,
                          s.p90 && `p90 ${ms(s.p90)}`,
                      ]
                          .filter(Boolean)
                          .join(" · ")
                    : "",
            );
            mfu.set(
                percent(t.mfu),
                t.tokens_per_s && t.mfu === null ? "the peak of the device is unknown" : "",
            );
            memory.set(
                bytes((t.simulated ? t.memory?.planned : t.memory?.measured)?.total),
                `planned ${bytes(t.memory?.planned?.total ?? t.predicted?.memory_bytes)}`,
            );
            loss.set(
                significant(t.loss?.last, 4),
                t.loss?.first !== undefined && t.loss?.first !== null
                    ? `from ${significant(t.loss.first, 4)}`
                    : "",
            );
            took.set(
                seconds(t.seconds),
                `${counted(t.attempts ?? 0, "attempt")} · ${t.started ? `started ${time(t.started)}` : "not started"}`,
            );
        },
    };
}

function failureNotice(t) {
    if (t.warning)
        return notice(
            "warn",
            h("h2", {}, `${t.state}: ${TRIAL_STATES[t.state]?.[2] ?? "warning"}`),
            h("p", {}, t.warning),
        );
    if (!t.failure) return null;
    const f = t.failure;
    return notice(
        "bad",
        h("h2", {}, `${f.class ?? t.state}: ${TRIAL_STATES[t.state]?.[2] ?? "failed"}`),
        h("p", {}, f.detail ?? ""),
        h(
            "p",
            { class: "soft" },
            [
                f.rank !== null && f.rank !== undefined && `rank ${f.rank}`,
                f.exit_code !== null && f.exit_code !== undefined && `exit code ${f.exit_code}`,
                f.signal !== null && f.signal !== undefined && `signal ${f.signal}`,
            ]
                .filter(Boolean)
                .join(" · "),
        ),
    );
}

const sumOf = (phases) => Object.values(phases ?? {}).reduce((sum, v) => sum + (v ?? 0), 0);

const shortMs = (x) => (x > 0 && x < 0.01 ? "< 0.01" : significant(x, 3));

function moreMs(x) {
    if (Math.abs(x) < 0.01) return "0";
    return x > 0 ? `+${shortMs(x)}` : `−${shortMs(-x)}`;
}

/** Where the time of a step went, and where that differs from the best trial's: that is why this one lost. */
function phaseTable(phases, best) {
    const other = best?.phases_ms ?? null;
    const keys = ordered({ ...phases, ...other }, PHASES).filter(
        (k) => (phases[k] ?? null) !== null || (other?.[k] ?? null) !== null,
    );
    const total = sumOf(phases);
    const number = (text) => h("td", { class: "num" }, text);
    const row = (name, help, mine, theirs, share) =>
        h(
            "tr",
            {},
            h("th", { scope: "row", title: help }, name),
            number(shortMs(mine)),
            number(share),
            other && [number(shortMs(theirs)), number(moreMs(mine - theirs))],
        );
    const head = (text, more) => h("th", { scope: "col", class: "num", ...more }, text);
    return h(
        "div",
        {
            class: "scroll",
            tabindex: "0",
            role: "region",
            "aria-label": "table of the median step",
        },
        h(
            "table",
            {},
            h(
                "thead",
                {},
                h(
                    "tr",
                    {},
                    h("th", { scope: "col" }, "phase"),
                    head("ms"),
                    head("share"),
                    other && [
                        head(`trial ${best.n}, ms`, { title: "the best trial of the campaign" }),
                        head("more, ms", { title: "than the best trial" }),
                    ],
                ),
            ),
            h(
                "tbody",
                {},
                keys.map((k) =>
                    row(
                        k,
                        PHASE_HELP[k] ?? "",
                        phases[k] ?? 0,
                        other?.[k] ?? 0,
                        percent(total ? (phases[k] ?? 0) / total : null),
                    ),
                ),
                row("step", null, total, sumOf(other), ""),
            ),
        ),
    );
}

function layoutPanel(t, campaign) {
    const keys = Object.keys(LAYOUT_KEYS).filter(
        (k) => t.layout?.[k] !== undefined && t.layout[k] !== null,
    );
    return panel(
        "Layout",
        { note: "Keys that differ from the baseline's say so." },
        layoutChips(t.layout ?? {}, keys, LAYOUT_KEYS, campaign.baseline?.layout),
        pairs([
            [
                "Kind",
                h(
                    "span",
                    {},
                    `${t.kind}: ${KINDS[t.kind] ?? ""}`,
                    t.repeat_of
                        ? [
                              " (of ",
                              h(
                                  "a",
                                  { href: href(["campaigns", t.campaign, "trials", t.repeat_of]) },
                                  `trial ${t.repeat_of}`,
                              ),
                              ")",
                          ]
                        : null,
                ),
            ],
            ["Why", t.why ?? NONE],
            [
                "Expected",
                `${rate(t.predicted?.tokens_per_s)}, ${bytes(t.predicted?.memory_bytes)}, fits with ${percent(t.predicted?.p_fits, 0)}`,
            ],
        ]),
    );
}

/** How this layout is run again by the bundled trainer: two commands, or its configuration as a file. */
function reproducePanel(id, n, world, { signal, simulated }) {
    const file = `trial-${id}-${n}.json`;
    const leave = simulated ? "--allow-simulated " : "";
    const commands = [
        `partune export ${id} --to partune --trial ${n} ${leave}--output ${file}`,
        `mpiexec -n ${world ?? "RANKS"} partune-train --config ${file}`,
    ].join("\n");
    const code = h("pre", { class: "code commands", tabindex: "0" }, commands);
    const place = h(
        "div",
        {},
        h("button", { type: "button", onclick: load }, "Show the configuration"),
    );

    async function load() {
        try {
            const [text] = await getText(
                campaignPath(id, "/export/partune"),
                { trial: n, ...(simulated && { allow_simulated: "true" }) },
                signal,
            );
            fill(
                place,
                h("pre", { class: "code", tabindex: "0" }, text),
                h(
                    "p",
                    { class: "actions" },
                    h(
                        "button",
                        { type: "button", onclick: () => saveText(text, file, "application/json") },
                        "Download",
                    ),
                ),
            );
            if (document.activeElement === document.body) place.querySelector("pre").focus();
        } catch (error) {
            if (error.name !== "AbortError") fill(place, failure(error, load));
        }
    }
    return panel(
        simulated ? "Run it for real" : "Run it again",
        {
            className: "w4",
            note: "With the bundled trainer:",
            tools: h(
                "button",
                { type: "button", class: "quiet", onclick: () => copyText(commands, code) },
                "Copy",
            ),
        },
        code,
        place,
    );
}

function stragglerNotice(steps, world) {
    const list = stragglers(steps, world);
    return (
        list.length > 0 &&
        notice(
            "warn",
            `${list.length === 1 ? "Rank" : "Ranks"} ${list.join(", ")} ${
                list.length === 1 ? "is a straggler" : "are stragglers"
            }: slowest far more often than chance allows.`,
        )
    );
}

/**
 * The steps of a trial in order, without doubles. A long one is thinned to KEEP_STEPS, the shortest and the longest of
 * every run kept, so that a page which is watched for days stays as large as it is.
 */
export function stepStore() {
    let byN = new Map();
    let thinned = false;
    const inOrder = () => [...byN.values()].sort((a, b) => a.n - b.n);
    return {
        put(items) {
            for (const s of items) byN.set(s.n, s);
            if (byN.size <= 2 * KEEP_STEPS) return;
            byN = new Map(thin(inOrder(), KEEP_STEPS, (s) => s.ms).map((s) => [s.n, s]));
            thinned = true;
        },
        clear() {
            byN.clear();
            thinned = false;
        },
        thinned: () => thinned,
        all: inOrder,
    };
}

const standing = (c) => `${c.best?.trial} ${c.baseline?.tokens_per_s}`;

export async function render(ctx) {
    const [, id, , nText] = ctx.segments;
    const n = Number(nText);
    // The number of the newest trial; where that fails, the way to the next one opens with the next one's event.
    const newest = () =>
        get(campaignPath(id, "/trials"), { sort: "-n", page_size: 1 }, ctx.signal).then(
            (page) => page.items[0]?.n ?? n,
            () => n,
        );
    const [firstCampaign, first, newestNow] = await Promise.all([
        get(campaignPath(id), null, ctx.signal),
        get(trialPath(id, nText), null, ctx.signal),
        newest(),
    ]);
    let campaign = firstCampaign;
    let best = null; // the campaign's best trial, where it is another
    let trial = first;
    ctx.simulated = first.simulated;
    let last = newestNow;
    const steps = stepStore();

    const heading = h("h1", {});
    const badge = h("span", {});
    const layoutText = h("p", { class: "sub mono" });
    const failurePlace = h("div");
    const heads = trialTiles();
    const layoutPlace = h("div", { class: "w8" });
    const phasePlace = h("div", {});
    const stragglerPlace = h("div", {});
    const thinnedPlace = h("div", {});
    const make = (spec, more) =>
        chartPanel(ctx, { ...spec, ...more, name: `${spec.name}-${id}-${n}` });
    const timeChart = make(stepTime, { className: "w8" });
    const histChart = make(stepHistogram, { className: "w4" });
    const phaseChart = make(phaseStack, { className: "w8" });
    const spreadChart = make(rankSpread, { className: "w6" });
    const heatChart = make(rankHeat, { className: "w6" });
    const memoryChart = make(memoryBars, { className: "w6" });
    const laneChart = make(lanes, {
        tools: h(
            "button",
            {
                type: "button",
                class: "quiet",
                onclick: () =>
                    trace &&
                    saveText(
                        JSON.stringify(trace),
                        `trial-${id}-${n}.trace.json`,
                        "application/json",
                    ),
            },
            "Trace",
        ),
    });
    let trace = null;
    const mesh = first.layout ? meshView(first.layout, campaign.cluster) : null;
    ctx.onLeave(() => mesh?.done?.());
    const log = logPanel(ctx, trialPath(id, nText, "/log"));

    function drawTrial() {
        ctx.title(`Trial ${n} (${trial.state})`);
        heading.textContent = `Trial ${n}`;
        badge.replaceChildren(trialBadge(trial.state), " ", simulatedBadge(trial) ?? "");
        layoutText.textContent = trial.text ?? "";
        fill(failurePlace, failureNotice(trial));
        heads.update(trial, campaign);
        fill(layoutPlace, layoutPanel(trial, campaign));
        if (Object.values(trial.phases_ms ?? {}).some((v) => v > 0))
            fill(phasePlace, phaseTable(trial.phases_ms, best));
        else
            fill(
                phasePlace,
                h(
                    "p",
                    { class: "soft" },
                    LIVE_TRIAL.has(trial.state)
                        ? "Known when the trial has ended."
                        : trial.tokens_per_s === null
                          ? "This trial gave no result."
                          : "This trainer does not say where the time of a step went.",
                ),
            );
        memoryChart.set({ memory: trial.memory });
        log.live(LIVE_TRIAL.has(trial.state));
    }

    const drawSteps = atMostEvery(250, () => {
        const data = { steps: steps.all(), world: trial.layout?.world };
        timeChart.set(data);
        histChart.set(data);
        phaseChart.set(data);
        spreadChart.set(data);
        heatChart.set(data);
        fill(
            thinnedPlace,
            steps.thinned() &&
                h(
                    "p",
                    { class: "soft" },
                    "This trial is long: the charts hold some of its steps, with the shortest and the longest of every stretch. ",
                    h("code", {}, `partune --json get '/v1/campaigns/${id}/trials/${n}/steps'`),
                    " has all.",
                ),
        );
        fill(stragglerPlace, stragglerNotice(data.steps, trial.layout?.world ?? 1));
    });

    async function loadSteps() {
        try {
            await eachPage(
                trialPath(id, nText, "/steps"),
                {},
                (items) => {
                    steps.put(items);
                    drawSteps();
                },
                ctx.signal,
            );
        } catch (error) {
            if (error.name !== "AbortError") console.warn(`steps: ${error.message}`);
        }
    }

    // Not before the trial has ended: until then there is none, and asking is noise.
    async function loadTrace() {
        if (LIVE_TRIAL.has(trial.state) || trace) return;
        trace = await get(trialPath(id, nText, "/timeline"), null, ctx.signal).catch(() => null);
        laneChart.element.hidden = trace === null;
        laneChart.set({ trace });
    }

    const step = (to, text, key) =>
        to >= 1 && to <= last
            ? h(
                  "a",
                  {
                      class: "button",
                      href: href(["campaigns", id, "trials", String(to)]),
                      "data-key": key,
                  },
                  text,
              )
            : h("button", { type: "button", disabled: true }, text);
    let after = step(n + 1, "After →", "after");

    function another(number) {
        if (number <= last) return;
        const wasLast = last === n;
        last = number;
        if (!wasLast) return;
        const link = step(n + 1, "After →", "after");
        after.replaceWith(link);
        after = link;
    }

    const compareWith = (other, text) =>
        h(
            "a",
            {
                class: "button",
                href: href(["compare"], { trials: `${id}/${n},${id}/${other}` }),
            },
            text,
        );
    const againstBest = h("span");

    // What the best trial did with its time says why this one lost.
    async function loadBest() {
        const number = campaign.best?.trial;
        if (!number || number === n) {
            best = null;
            fill(againstBest);
        } else if (best?.n !== number) {
            fill(againstBest, compareWith(number, "Compare with the best"));
            best = await get(trialPath(id, number), null, ctx.signal).catch(() => best);
        }
        if (!ctx.signal.aborted) drawTrial();
    }

    fill(
        ctx.root,
        h(
            "p",
            { class: "crumbs" },
            h("a", { href: href([]) }, "Campaigns"),
            " / ",
            h("a", { href: href(["campaigns", id]) }, h("bdi", {}, campaign.name.slice(0, 80))),
            ` / trial ${n}`,
        ),
        h(
            "div",
            { class: "head" },
            heading,
            badge,
            h("span", { class: "grow" }),
            h(
                "div",
                { class: "actions" },
                step(n - 1, "← Before", "before"),
                after,
                campaign.baseline &&
                    campaign.baseline.trial !== n &&
                    compareWith(campaign.baseline.trial, "Compare with the baseline"),
                againstBest,
            ),
        ),
        layoutText,
        failurePlace,
        heads.element,
        h("div", { class: "grid" }, layoutPlace, reproducePanel(id, n, first.layout?.world, ctx)),
        h(
            "div",
            { class: "grid" },
            thinnedPlace,
            timeChart.element,
            histChart.element,
            phaseChart.element,
            panel("Median step", { className: "w4" }, phasePlace),
            memoryChart.element,
            log.element,
            stragglerPlace,
            spreadChart.element,
            heatChart.element,
            mesh &&
                panel(
                    "Mesh",
                    { note: "Which ranks form a group, and over which links those groups talk." },
                    mesh,
                ),
            laneChart.element,
        ),
    );
    drawTrial();
    drawSteps();
    laneChart.element.hidden = true;
    loadTrace();
    loadBest();

    const stream = openStream(campaignPath(id, "/events"), {
        onState: ctx.streamState,
        onOpen: async () => {
            loadSteps();
            log.reload();
            newest().then(another);
            const before = trial;
            const now = await get(trialPath(id, nText), null, ctx.signal).catch(() => trial);
            if (ctx.signal.aborted || trial !== before) return; // an event has told of newer
            trial = now;
            drawTrial();
        },
        onEvent: (event, data) => {
            if (event === "campaign" && data.id === id) {
                const before = campaign;
                campaign = data;
                if (standing(before) !== standing(data)) loadBest();
            }
            if (event === "trial") another(data.n);
            if (event === "trial" && data.n === n) {
                if ((data.attempts ?? 0) > (trial.attempts ?? 0)) steps.clear();
                const ended = LIVE_TRIAL.has(trial.state) && !LIVE_TRIAL.has(data.state);
                trial = data;
                drawTrial();
                if (ended) {
                    loadSteps();
                    loadTrace();
                }
            } else if (event === "step" && data.n === n) {
                steps.put([data.step]);
                drawSteps();
                log.more();
            }
        },
    });
    ctx.onLeave(stream.close);
}
