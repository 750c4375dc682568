// A small reverse proxy: what stands below PREFIX is the daemon's. take(path, request, response) may answer itself.

import http from "node:http";

/** Returns {url, close()}: the daemon at UPSTREAM is found at url, whose path is PREFIX. */
export async function startProxy(upstream, prefix, take = () => false) {
    const server = http.createServer((request, response) => {
        if (!request.url.startsWith(prefix)) {
            response.writeHead(404).end();
            return;
        }
        const target = new URL(request.url.slice(prefix.length), upstream);
        if (take(target.pathname, request, response)) return;
        const onward = http.request(
            target,
            // With the Host that the browser named: the daemon compares it with the Origin.
            { method: request.method, headers: request.headers },
            (answer) => {
                response.writeHead(answer.statusCode, answer.headers);
                answer.pipe(response);
            },
        );
        onward.on("error", () => response.destroy());
        response.on("close", () => onward.destroy());
        request.pipe(onward);
    });
    await new Promise((resolve) => {
        server.listen(0, "127.0.0.1", resolve);
    });
    return {
        url: `http://127.0.0.1:${server.address().port}${prefix}`,
        close() {
            server.closeAllConnections();
            server.close();
        },
    };
}
