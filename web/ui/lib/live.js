// Server-sent events over fetch, because EventSource cannot send a token.
//
// A stream remembers the id of the last event it saw and asks for what came after it when it connects again, so that a
// restart of the service loses nothing. It lets go of its connection while the tab is hidden for long: a browser has
// six of them for one host, and an engineer has more tabs than that.

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

/** The time until the attempt after so many FAILURES, spread so that pages do not all come back at once. */
function retryWait(failures) {
    const base = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    return base * (0.75 + 0.5 * Math.random());
}

class EventStream {
    #path;
    #on;
    #lastId = null;
    #failures = 0;
    #abort = null;
    #timer = 0;
    #silence = 0;
    #hiddenTimer = 0;
    #paused = false;
    #closed = false;
    #onVisibility = () => this.#visibilityChanged();
    #onOnline = () => this.#timer && this.#connect();

    constructor(path, handlers) {
        this.#path = path;
        this.#on = handlers;
        document.addEventListener("visibilitychange", this.#onVisibility);
        window.addEventListener("online", this.#onOnline);
        this.#connect();
    }

    close = () => {
        this.#closed = true;
        clearTimeout(this.#timer);
        clearTimeout(this.#silence);
        clearTimeout(this.#hiddenTimer);
        document.removeEventListener("visibilitychange", this.#onVisibility);
        window.removeEventListener("online", this.#onOnline);
        this.#abort?.abort();
    };

    #parser() {
        return eventParser(({ event, data, id }) => {
            if (id !== null) this.#lastId = id;
            this.#on.onEvent(event, JSON.parse(data));
        });
    }

    /** Something came: a stream that is silent for long is dead. */
    #heard() {
        clearTimeout(this.#silence);
        this.#silence = setTimeout(() => this.#abort?.abort(), SILENCE_MS);
    }

    #request(signal) {
        return fetch(url(this.#path), {
            signal,
            cache: "no-store",
            credentials: "omit",
            headers: headers({
                Accept: "text/event-stream",
                ...(this.#lastId !== null && { "Last-Event-ID": this.#lastId }),
            }),
        });
    }

    /** Throws where RESPONSE is no stream; closes for good where there will never be one. */
    #judge({ ok, status }) {
        if (FINAL.has(status)) {
            this.#closed = true;
            if (status === 401) refused();
            else this.#on.onState("gone", 0);
        }
        if (!ok) throw new Error(`the service answered ${status}`);
    }

    async #read(signal) {
        const response = await this.#request(signal);
        this.#judge(response);
        this.#failures = 0;
        this.#on.onState("live", 0);
        this.#on.onOpen(this.#lastId !== null);
        this.#heard();
        const feed = this.#parser();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
            const { value, done } = await reader.read();
            if (done) return;
            this.#heard();
            feed(value);
        }
    }

    async #connect() {
        clearTimeout(this.#timer);
        this.#timer = 0;
        this.#abort?.abort();
        const mine = new AbortController();
        this.#abort = mine;
        if (this.#failures === 0) this.#on.onState("connecting", 0);
        try {
            await this.#read(mine.signal);
        } catch (error) {
            if (!(error instanceof TypeError) && error.name !== "AbortError")
                console.warn(`event stream: ${error.message}`);
        }
        clearTimeout(this.#silence);
        if (this.#closed || this.#abort !== mine || this.#paused) return;
        const wait = retryWait(this.#failures);
        this.#failures += 1;
        this.#on.onState("lost", wait);
        this.#timer = setTimeout(() => this.#connect(), wait);
    }

    #visibilityChanged() {
        clearTimeout(this.#hiddenTimer);
        if (this.#closed) return;
        if (document.hidden) this.#hiddenTimer = setTimeout(() => this.#pause(), HIDDEN_MS);
        else if (this.#paused) {
            this.#paused = false;
            this.#connect();
        }
    }

    #pause() {
        this.#paused = true;
        clearTimeout(this.#timer);
        this.#abort?.abort();
    }
}

/**
 * Keep a stream of PATH open. onOpen(resumed) is called at each connection: resumed means that the events since the
 * last one will be sent, otherwise the caller must load what it shows. onEvent(name, object), onState("connecting" |
 * "live" | "lost" | "gone", milliseconds until the next attempt): gone is what the service does not have (any more), or
 * does not show to this token; that is not asked for again. Returns {close()}.
 */
export function openStream(path, handlers) {
    return new EventStream(path, handlers);
}
