"""Simulates the internet: DNS, web servers and package indexes on public addresses, and a private network.

Runs in its own network namespace. Prints "here", waits for a line, serves, prints "ready", and exits when its input closes.
"""

import base64
import collections
import hashlib
import io
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PUBLIC, PUBLIC6 = "1.1.1.1", "2606:4700::1111"
RECORDS = {
    "www.example.org": [PUBLIC],
    "six.example.org": [PUBLIC6],
    "inside.example.org": ["127.0.0.1"],
    "mapped.example.org": ["::ffff:127.0.0.1"],
    "private.example.org": ["10.66.0.1"],
    "meta.example.org": ["169.254.169.254"],
    "mine.example.org": ["9.9.9.1"],
    "mixed.example.org": [PUBLIC, "127.0.0.1"],
    "mixed6.example.org": [PUBLIC, "::1"],
    # Too unlike this machine's own address to be sorted first.
    "mixedlast.example.org": [PUBLIC, "192.168.66.1"],
    "intranet": ["10.66.0.1"],
}
# One answer after the other, the last one for good.
CHANGING = {"rebind.example.org": [[PUBLIC], ["127.0.0.1"]]}
ALIASES = {"alias.example.org": "inside.example.org"}
asked = collections.Counter()


def answers(name, kind):
    if name in CHANGING:
        turns = CHANGING[name]
        turn = turns[min(asked[name], len(turns) - 1)]
        asked[name] += kind == 1
        return turn
    return RECORDS.get(ALIASES.get(name, name))


def dns():
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("8.8.4.4", 53))
    while True:
        query, client = server.recvfrom(2048)
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("latin1"))
            at += 1 + query[at]
        question, kind = query[12 : at + 5], struct.unpack(">H", query[at + 1 : at + 3])[0]
        name = ".".join(labels).lower()
        found = answers(name, kind)
        body, count = b"", 0
        for address in found or []:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if kind == {socket.AF_INET: 1, socket.AF_INET6: 28}[family]:
                packed = socket.inet_pton(family, address)
                body += struct.pack(">HHHIH", 0xC00C, kind, 1, 0, len(packed)) + packed
                count += 1
        code = 0x8180 if found is not None else 0x8183
        server.sendto(query[:2] + struct.pack(">HHHHH", code, 1, count, 0, 0) + question + body, client)


def files():
    """Everything that can be fetched by its path."""
    made = {"/hello": b"hello from the internet\n"}
    # A wheel and its index.
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_thing.py", "value = 42\n")
        info = "tiny_thing-1.0.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")
    made["/simple/tiny-thing/"] = b'<a href="/wheels/tiny_thing-1.0-py3-none-any.whl">tiny</a>'
    made["/wheels/tiny_thing-1.0-py3-none-any.whl"] = wheel.getvalue()

    def tarball(top, contents):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, text in contents.items():
                member = tarfile.TarInfo(f"{top}/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return out.getvalue()

    # A crate and its index.
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    crate = tarball("tiny-1.0.0", {"Cargo.toml": manifest, "src/lib.rs": "pub const VALUE: u8 = 42;\n"})
    made["/crates/config.json"] = json.dumps({"dl": "http://www.example.org/dl/{crate}-{version}.crate"}).encode()
    entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    entry["cksum"] = hashlib.sha256(crate).hexdigest()
    made["/crates/ti/ny/tiny"] = json.dumps(entry).encode() + b"\n"
    made["/dl/tiny-1.0.0.crate"] = crate
    # A package of npm and its document.
    package = {"name": "tiny-thing", "version": "1.0.0"}
    pack = tarball("package", {"package.json": json.dumps(package), "index.js": "module.exports = 42\n"})
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(pack).digest()).decode()
    dist = {"tarball": "http://www.example.org/npm/tiny.tgz", "integrity": integrity}
    document = {"name": "tiny-thing", "dist-tags": {"latest": "1.0.0"}}
    document["versions"] = {"1.0.0": {**package, "dist": dist}}
    made["/npm/tiny-thing"] = json.dumps(document).encode()
    made["/npm/tiny.tgz"] = pack
    return made


def repository(folder):
    """A bare repository that can be cloned as plain files."""
    bare, work = f"{folder}/repo.git", f"{folder}/work"
    me = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    run = lambda *words: subprocess.run(["git", *me, *words], check=True, capture_output=True)
    run("init", work)
    with open(f"{work}/file", "w") as file:
        file.write("from the repository\n")
    run("-C", work, "add", "file")
    run("-C", work, "commit", "-m", "first")
    run("clone", "--bare", work, bare)
    run("-C", bare, "update-server-info")


class Web(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_):
        pass

    def reply(self, body, code=200, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urlsplit(self.path)
        given = {name: values[0] for name, values in parse_qs(url.query).items()}
        path = os.path.normpath(url.path) + ("/" if url.path.endswith("/") and url.path != "/" else "")
        if path == "/redirect":
            self.reply(b"", 302, Location=given["to"])
        elif path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", given["bytes"])
            self.end_headers()
            left, block = int(given["bytes"]), bytes(range(256)) * 1024
            while left > 0:
                self.wfile.write(block[:left])
                left -= len(block)
        elif path == "/head":
            self.reply(self.requestline.encode() + b"\n" + bytes(self.headers))
        elif path in self.server.files:
            kind = "text/html" if path.endswith("/") else "application/octet-stream"
            self.reply(self.server.files[path], **{"Content-Type": kind})
        elif path.startswith("/repo.git/") and os.path.isfile(self.server.folder + path):
            with open(self.server.folder + path, "rb") as file:
                self.reply(file.read())
        else:
            self.reply(b"no such thing\n", 404)

    do_HEAD = do_GET

    def do_POST(self):
        digest, total = hashlib.sha256(), 0
        chunked = self.headers.get("Transfer-Encoding") == "chunked"
        left = int(self.headers.get("Content-Length", 0))
        while chunked or left:
            size = int(self.rfile.readline(), 16) if chunked else left
            for at in range(0, size, 1 << 16):
                part = self.rfile.read(min(size - at, 1 << 16))
                digest.update(part)
                total += len(part)
            left = 0
            if chunked:
                self.rfile.readline()
                chunked = size > 0
        self.reply(f"{total} {digest.hexdigest()}\n".encode())

    do_PUT = do_POST


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address, port, folder, made):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.folder, self.files = folder, made
        super().__init__((address, port), Web)


def main():
    folder = sys.argv[1]
    print("here", flush=True)
    sys.stdin.readline()
    made = files()
    repository(folder)
    key, certificate = f"{folder}/key.pem", f"{folder}/cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        + ["-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=www.example.org"]
        + ["-addext", "subjectAltName=DNS:www.example.org"],
        check=True,
        capture_output=True,
    )
    secret = {"/hello": b"a secret of the private network\n"}
    servers = [Server(PUBLIC, 80, folder, made), Server(PUBLIC6, 80, folder, made)]
    servers += [Server("10.66.0.1", 80, folder, secret), Server("169.254.169.254", 80, folder, secret)]
    https = Server(PUBLIC, 443, folder, made)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    https.socket = context.wrap_socket(https.socket, server_side=True)
    threading.Thread(target=dns, daemon=True).start()
    for server in [*servers, https]:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


main()
