// Ask for a token where the service wants one and the address brought none.

import { get, setToken } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { failure, notice } from "../parts/parts.js";

export function signIn(ctx, done) {
    const field = h("input", {
        type: "password",
        id: "token",
        autocomplete: "off",
        required: true,
        spellcheck: "false",
        "aria-describedby": "token-help",
    });
    const answer = h("div", { "aria-live": "assertive" });

    async function submit(event) {
        event.preventDefault();
        setToken(field.value.trim());
        try {
            await get("v1/campaigns", { page_size: 1 });
            done();
        } catch (error) {
            if (error.status !== 401) {
                fill(answer, failure(error));
                return;
            }
            // The refusal has drawn this form anew; the message goes into the new one.
            const place = document.getElementById("signin-answer");
            place?.replaceChildren(notice("bad", "Unknown token."));
        }
    }

    answer.id = "signin-answer";
    ctx.title("Sign in");
    fill(
        ctx.root,
        h("h1", {}, "Sign in"),
        h(
            "p",
            { class: "sub", id: "token-help" },
            "Open the link that partuned prints at startup to sign in. " +
                "Or paste a token here; it is kept until this tab is closed.",
        ),
        h(
            "form",
            { onsubmit: submit, class: "filters" },
            h("label", { class: "field", for: "token" }, h("span", {}, "Token"), field),
            h("button", { class: "primary" }, "Sign in"),
        ),
        answer,
    );
    field.focus();
}
