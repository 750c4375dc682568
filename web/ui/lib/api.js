// The HTTP service. Addresses are relative to the page, so that the dashboard works below any path.

import { session } from "./store.js";

const BASE = new URL(".", document.baseURI);
const KEY = "partune-token";

let token = session.get(KEY) ?? "";
let onRefused = () => {};

export function setToken(text) {
    token = text;
    if (text) session.set(KEY, text);
    else session.remove(KEY);
}

export function hasToken() {
    return token !== "";
}

/** FN is called when the service does not accept the token. */
export function whenRefused(fn) {
    onRefused = fn;
}

/** Tell that an answer said so. */
export function refused() {
    onRefused();
}

export class ApiError extends Error {
    constructor(status, problem) {
        super(problem.detail || problem.title || `the service answered ${status}`);
        this.status = status;
        this.pointer = problem.pointer ?? null;
        this.rules = problem.rules ?? [];
    }
}

export function url(path, query) {
    const u = new URL(path, BASE);
    for (const [k, v] of Object.entries(query ?? {}))
        if (v !== null && v !== undefined && v !== "") u.searchParams.set(k, v);
    return u;
}

export function headers(more) {
    return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
}

async function problemOf(response) {
    try {
        return await response.json();
    } catch {
        return { title: response.statusText };
    }
}

/** Fetch, or throw ApiError (the service refused) or TypeError (it was not reached). */
export async function request(method, path, { query, body, signal, accept, match, key } = {}) {
    const response = await fetch(url(path, query), {
        method,
        signal,
        cache: "no-store",
        credentials: "omit",
        headers: headers({
            Accept: accept ?? "application/json",
            ...(body !== undefined && { "Content-Type": "application/json" }),
            ...(match && { "If-Match": match }),
            ...(key && { "Idempotency-Key": key }),
        }),
        body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.status === 401) onRefused();
    if (!response.ok) throw new ApiError(response.status, await problemOf(response));
    return response;
}

export async function get(path, query, signal) {
    return (await request("GET", path, { query, signal })).json();
}

/** The resource and its ETag, for a later change guarded by If-Match. */
export async function getTagged(path, signal) {
    const response = await request("GET", path, { signal });
    return [await response.json(), response.headers.get("ETag")];
}

export async function getText(path, query, signal) {
    const response = await request("GET", path, { query, signal, accept: "text/plain, */*" });
    return [await response.text(), response];
}

/** What is text only as a whole: a part of it may end inside a character. */
export async function getBytes(path, query, signal) {
    const response = await request("GET", path, { query, signal, accept: "text/plain, */*" });
    return [new Uint8Array(await response.arrayBuffer()), response];
}

/** POST. A key makes a retry safe: the same form sent twice makes one thing. */
export async function post(path, body, { query, signal, key } = {}) {
    const response = await request("POST", path, { query, body: body ?? {}, signal, key });
    return response.status === 204 ? null : response.json();
}

export async function patch(path, body, match) {
    const response = await request("PATCH", path, { body, match });
    return response.status === 204 ? null : response.json();
}

export async function remove(path) {
    await request("DELETE", path);
}

/** Every item of a list, a page at a time: ON_PAGE(items, total) may draw while the rest is on its way. */
export async function eachPage(path, query, onPage, signal) {
    let page_token = null;
    do {
        const page = await get(path, { page_size: 1000, ...query, page_token }, signal);
        onPage(page.items, page.total);
        page_token = page.next_page_token;
    } while (page_token);
}

/** Path of a campaign or of one of its trials. */
export function campaignPath(id, rest = "") {
    return `v1/campaigns/${encodeURIComponent(id)}${rest}`;
}

export function trialPath(id, n, rest = "") {
    return campaignPath(id, `/trials/${encodeURIComponent(n)}${rest}`);
}

/** What went wrong, as a sentence for a person. */
export function explain(error) {
    if (error instanceof ApiError) return error.message;
    if (error instanceof TypeError) return "The service cannot be reached. Is partuned running?";
    return String(error?.message ?? error);
}
