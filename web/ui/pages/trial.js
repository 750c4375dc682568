// One trial: what it was, how it went, where its time and memory went, what it wrote.

import { campaignPath, eachPage, get, trialPath } from "../lib/api.js";
import { atMostEvery } from "../lib/dom.js";
import { openStream } from "../lib/live.js";
import { isLive, loadTrial, newestTrial, standing } from "./trial-model.js";
import { trialView } from "./trial-view.js";

const DRAW_STEPS_MS = 250;

/** What fetches into MODEL and has VIEW show it: {steps(), trace(), best(), why(), newest(), trial()}. */
function loaders(ctx, model, view, drawSteps) {
    const { id, n } = model;

    async function steps() {
        const put = (items) => {
            model.steps.put(items);
            drawSteps();
        };
        try {
            await eachPage(trialPath(id, n, "/steps"), {}, put, ctx.signal);
        } catch (error) {
            if (error.name !== "AbortError") console.warn(`steps: ${error.message}`);
        }
    }

    // Not before the trial has ended: until then there is none, and asking is noise.
    async function trace() {
        if (isLive(model.trial) || model.trace) return;
        const found = await get(trialPath(id, n, "/timeline"), null, ctx.signal).catch(() => null);
        model.trace = found;
        view.drawTrace();
    }

    // What the best trial did with its time says why this one lost.
    async function best() {
        const number = model.campaign.best?.trial;
        if (!number || number === n) model.best = null;
        else if (model.best?.n !== number) {
            view.drawLinks();
            const found = await get(trialPath(id, number), null, ctx.signal).catch(() => null);
            if (found) model.best = found;
        }
        if (!ctx.signal.aborted) view.draw();
    }

    // Where there is none, the page shows the service's reason.
    async function why() {
        const found = await get(trialPath(id, n, "/why"), null, ctx.signal).catch(
            ({ message }) => ({ error: message }),
        );
        if (ctx.signal.aborted) return;
        model.why = found;
        view.drawWhy();
    }

    async function newest() {
        noteNewest(model, view, (await newestTrial(id, ctx.signal)) ?? n);
    }

    async function trial() {
        const before = model.trial;
        const now = await get(trialPath(id, n), null, ctx.signal).catch(() => before);
        if (ctx.signal.aborted || model.trial !== before) return; // an event has told of newer
        model.trial = now;
        view.draw();
    }
    return { steps, trace, best, why, newest, trial };
}

function noteNewest(model, view, number) {
    if (number <= model.last) return;
    model.last = number;
    view.drawLinks();
}

/** What each event of the campaign's stream changes. */
function eventHandlers(model, view, load, drawSteps) {
    const { id, n } = model;

    function trialChanged(trial) {
        const before = model.trial;
        if ((trial.attempts ?? 0) > (before.attempts ?? 0)) model.steps.clear();
        model.trial = trial;
        view.draw();
        if (isLive(before) && !isLive(trial)) {
            load.steps();
            load.trace();
            load.why();
        }
    }
    return {
        campaign(campaign) {
            if (campaign.id !== id) return;
            const before = model.campaign;
            model.campaign = campaign;
            if (standing(before) !== standing(campaign)) {
                load.best();
                load.why();
            }
        },
        trial(trial) {
            noteNewest(model, view, trial.n);
            if (trial.n === n) trialChanged(trial);
        },
        step(data) {
            if (data.n !== n) return;
            model.steps.put([data.step]);
            drawSteps();
            view.log.more();
        },
    };
}

export async function render(ctx) {
    const [, id, , number] = ctx.segments;
    const model = await loadTrial(id, number, ctx.signal);
    ctx.simulated = model.trial.simulated;
    const view = trialView(ctx, model);
    const drawSteps = atMostEvery(DRAW_STEPS_MS, view.drawSteps);
    const load = loaders(ctx, model, view, drawSteps);
    const on = eventHandlers(model, view, load, drawSteps);
    view.draw();
    drawSteps();
    load.trace();
    load.best();
    load.why();

    const stream = openStream(campaignPath(id, "/events"), {
        onState: ctx.streamState,
        onOpen: () => {
            load.steps();
            view.log.reload();
            load.newest();
            load.trial();
        },
        onEvent: (event, data) => on[event]?.(data),
    });
    ctx.onLeave(stream.close);
}
