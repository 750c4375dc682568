import { fill, h } from "../lib/dom.js";
import { href } from "../lib/router.js";
import { empty } from "../parts/parts.js";

export function notFound(ctx) {
    ctx.title("Not found");
    fill(
        ctx.root,
        h("h1", {}, "Not found"),
        empty("There is no such page", h("p", {}, h("a", { href: href([]) }, "All campaigns"))),
    );
}
