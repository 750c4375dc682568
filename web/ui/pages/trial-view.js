// The page of one trial, drawn from its model.

import { trialPath } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { saveText } from "../lib/download.js";
import { href } from "../lib/router.js";
import { lanes } from "../charts/lanes.js";
import { meshView } from "../charts/mesh.js";
import { chartPanel } from "../charts/panel.js";
import {
    memoryBars,
    phaseStack,
    rankHeat,
    rankSpread,
    stepHistogram,
    stepTime,
} from "../charts/trial.js";
import { logPanel } from "../parts/log.js";
import { button, crumbs, linkButton, panel, simulatedBadge, trialBadge } from "../parts/parts.js";
import {
    failureNotice,
    layoutPanel,
    medianStep,
    reproducePanel,
    stragglerNotice,
    thinnedNote,
    trialTiles,
} from "./trial-panels.js";
import { whyPanel } from "./trial-why.js";
import { isLive, isSmaller, ranOf } from "./trial-model.js";

function makeCharts(ctx, model) {
    const { id, n } = model;
    const make = (spec, more) =>
        chartPanel(ctx, { ...spec, ...more, name: `${spec.name}-${id}-${n}` });
    const saveTrace = () =>
        model.trace &&
        saveText(JSON.stringify(model.trace), `trial-${id}-${n}.trace.json`, "application/json");
    return {
        time: make(stepTime, { className: "w8" }),
        distribution: make(stepHistogram, { className: "w4" }),
        phases: make(phaseStack, { className: "w8" }),
        spread: make(rankSpread, { className: "w6" }),
        heat: make(rankHeat, { className: "w6" }),
        memory: make(memoryBars, { className: "w6" }),
        lanes: make(lanes, { tools: button("Trace", saveTrace, "quiet") }),
    };
}

/** Links to the trials before and after, and to comparisons: {element, draw()}. */
function navigation(model) {
    const { id, n, campaign } = model;
    const after = h("span");
    const againstBest = h("span");
    let opened = null;
    let compared = null;
    const step = (to, text, key) =>
        to >= 1 && to <= model.last
            ? linkButton(text, href(["campaigns", id, "trials", String(to)]), { "data-key": key })
            : h("button", { type: "button", disabled: true }, text);
    const compareWith = (other, text) =>
        other &&
        other !== n &&
        linkButton(text, href(["compare"], { trials: `${id}/${n},${id}/${other}` }));

    // A link that stays keeps the focus, so only what changed is made anew.
    function draw() {
        const best = model.campaign.best?.trial;
        const open = model.last > n;
        if (open !== opened) fill(after, step(n + 1, "Next →", "after"));
        if (best !== compared) fill(againstBest, compareWith(best, "Compare with best"));
        opened = open;
        compared = best;
    }
    const element = h(
        "div",
        { class: "actions" },
        step(n - 1, "← Previous", "before"),
        after,
        compareWith(campaign.baseline?.trial, "Compare with baseline"),
        againstBest,
    );
    return { element, draw };
}

/** The elements of the page that change with the trial. */
function makePlaces() {
    return {
        heading: h("h1", {}),
        badge: h("span", {}),
        layoutText: h("p", { class: "sub mono" }),
        failure: h("div"),
        layout: h("div", { class: "w8" }),
        phases: h("div", {}),
        why: h("div", {}),
        stragglers: h("div", {}),
        thinned: h("div", {}),
    };
}

function pageHead(model, places, links) {
    const { id, n, campaign } = model;
    return [
        crumbs(
            ["Campaigns", href([])],
            [campaign.name.slice(0, 80), href(["campaigns", id])],
            [`trial ${n}`],
        ),
        h(
            "div",
            { class: "head" },
            places.heading,
            places.badge,
            h("span", { class: "grow" }),
            links,
        ),
        places.layoutText,
        places.failure,
    ];
}

function chartGrid(places, charts, log, mesh) {
    return h(
        "div",
        { class: "grid" },
        places.thinned,
        charts.time.element,
        charts.distribution.element,
        charts.phases.element,
        panel("Median step", { className: "w4" }, places.phases),
        places.why,
        charts.memory.element,
        log.element,
        places.stragglers,
        charts.spread.element,
        charts.heat.element,
        mesh &&
            panel(
                "Mesh",
                { note: "Groups of ranks, and the links over which they communicate." },
                mesh,
            ),
        charts.lanes.element,
    );
}

/** The cluster that LAYOUT is on, of a campaign's only one or several. */
function clusterOf(campaign, layout) {
    return [campaign.cluster].flat().find((one) => !layout.cluster || one.name === layout.cluster);
}

/**
 * Fill ctx.root with the page. Returns {log, draw(), drawSteps(), drawTrace(), drawWhy()}, each of which
 * shows what the model has now.
 */
export function trialView(ctx, model) {
    const { id, n, campaign, trial } = model;
    const places = makePlaces();
    const heads = trialTiles();
    const charts = makeCharts(ctx, model);
    const links = navigation(model);
    const log = logPanel(ctx, trialPath(id, n, "/log"));
    const { layout } = ranOf(trial);
    const mesh = layout ? meshView(layout, clusterOf(campaign, layout)) : null;
    ctx.onLeave(() => mesh?.done?.());

    function draw() {
        const now = model.trial;
        ctx.title(`Trial ${n} (${now.state})`);
        places.heading.textContent = `Trial ${n}`;
        places.badge.replaceChildren(trialBadge(now.state), " ", simulatedBadge(now) ?? "");
        places.layoutText.textContent = now.text ?? "";
        fill(places.failure, failureNotice(now));
        heads.update(now, model.campaign);
        fill(places.layout, layoutPanel(now, model.campaign));
        fill(places.phases, medianStep(now, model.best));
        charts.memory.set({ memory: ranOf(now).memory });
        log.live(isLive(now));
        links.draw();
    }

    function drawSteps() {
        const world = ranOf(model.trial).layout?.world;
        const data = { steps: model.steps.all(), world };
        for (const name of ["time", "distribution", "phases", "spread", "heat"])
            charts[name].set(data);
        fill(places.thinned, model.steps.thinned() && thinnedNote(model));
        fill(places.stragglers, stragglerNotice(data.steps, world ?? 1));
    }

    const drawWhy = () => fill(places.why, whyPanel(model.why));

    function drawTrace() {
        charts.lanes.element.hidden = model.trace === null;
        charts.lanes.set({ trace: model.trace });
    }

    fill(
        ctx.root,
        pageHead(model, places, links.element),
        heads.element,
        h(
            "div",
            { class: "grid" },
            places.layout,
            !isSmaller(trial) && reproducePanel(model, ctx.signal),
        ),
        chartGrid(places, charts, log, mesh),
    );
    charts.lanes.element.hidden = true;
    return { log, draw, drawSteps, drawTrace, drawWhy, drawLinks: links.draw };
}
