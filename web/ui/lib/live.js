// Server-sent events over fetch, because EventSource cannot send a token.
//
// A stream remembers the id of the last event it saw and asks for what came after it when it connects again, so that a
// restart of the service loses nothing. It lets go of its connection while the tab is hidden for long: a browser has six
// of them for one host, and an engineer has more tabs than that.

import { headers, refused, url } from "./api.js";

const RETRY_MS = [250, 500, 1000, 2000, 4000, 8000];
const SILENCE_MS = 60_000; // heartbeats are far more frequent
const HIDDEN_MS = 120_000;
const FINAL = new Set([401, 403, 404, 410]);

/**
 * Split a stream of text into events. feed(text) calls ON_EVENT({event, data, id}) for each that is complete.
 * https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
 */
export function eventParser(onEvent) {
    let rest = "";
    let event = "";
    let data = [];
    let id = null;

    const line = (text) => {
        if (text === "") {
            if (data.length) onEvent({ event: event || "message", data: data.join("\n"), id });
            event = "";
            data = [];
            return;
        }
        const colon = text.indexOf(":");
        const field = colon < 0 ? text : text.slice(0, colon);
        const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
        if (field === "event") event = value;
        else if (field === "data") data.push(value);
        else if (field === "id") id = value;
    };

    return (text) => {
        const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
        rest = lines.pop();
        lines.forEach(line);
    };
}

/**
 * Keep a stream of PATH open. onOpen(resumed) is called at each connection: resumed means that the events since the last
 * one will be sent, otherwise the caller must load what it shows. onEvent(name, object), onState("connecting" | "live" |
 * "lost" | "gone", milliseconds until the next attempt): gone is what the service does not have (any more), or does not show
 * to this token; that is not asked for again.
 */
export function openStream(path, { onEvent, onOpen, onState }) {
    let lastId = null;
    let failures = 0;
    let abort = null;
    let timer = 0;
    let silence = 0;
    let hiddenTimer = 0;
    let closed = false;

    const parserFor = () =>
        eventParser((e) => {
            if (e.id !== null) lastId = e.id;
            onEvent(e.event, JSON.parse(e.data));
        });

    const heard = () => {
        clearTimeout(silence);
        silence = setTimeout(() => abort?.abort(), SILENCE_MS);
    };

    async function read(signal) {
        const response = await fetch(url(path), {
            signal,
            cache: "no-store",
            credentials: "omit",
            headers: headers({
                Accept: "text/event-stream",
                ...(lastId !== null && { "Last-Event-ID": lastId }),
            }),
        });
        if (FINAL.has(response.status)) {
            closed = true;
            if (response.status === 401) refused();
            else onState("gone", 0);
        }
        if (!response.ok) throw new Error(`the service answered ${response.status}`);
        failures = 0;
        onState("live", 0);
        onOpen(lastId !== null);
        heard();
        const feed = parserFor();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            heard();
            feed(value);
        }
    }

    async function connect() {
        clearTimeout(timer);
        timer = 0;
        abort?.abort();
        const mine = new AbortController();
        abort = mine;
        if (failures === 0) onState("connecting", 0);
        try {
            await read(mine.signal);
        } catch (error) {
            if (!(error instanceof TypeError) && error.name !== "AbortError")
                console.warn(`event stream: ${error.message}`);
        }
        clearTimeout(silence);
        if (closed || abort !== mine || paused) return;
        const wait =
            RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] * (0.75 + 0.5 * Math.random());
        failures += 1;
        onState("lost", wait);
        timer = setTimeout(connect, wait);
    }

    let paused = false;
    const onVisibility = () => {
        clearTimeout(hiddenTimer);
        if (closed) return;
        if (document.hidden) {
            hiddenTimer = setTimeout(() => {
                paused = true;
                clearTimeout(timer);
                abort?.abort();
            }, HIDDEN_MS);
        } else if (paused) {
            paused = false;
            connect();
        }
    };
    const onOnline = () => timer && connect();

    document.addEventListener("visibilitychange", onVisibility);
    window.addEventListener("online", onOnline);
    connect();

    return {
        close() {
            closed = true;
            clearTimeout(timer);
            clearTimeout(silence);
            clearTimeout(hiddenTimer);
            document.removeEventListener("visibilitychange", onVisibility);
            window.removeEventListener("online", onOnline);
            abort?.abort();
        },
    };
}
