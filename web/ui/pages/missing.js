import { fill, h } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { empty } from "../parts/parts.js";

/** In place of a page that the address names and that is none. */
export function render(ctx) {
    ctx.title("Not found");
    fill(
        ctx.root,
        h("h1", {}, "Not found"),
        empty("No such page", h("p", {}, h("a", { href: href([]) }, "All campaigns"))),
    );
}
