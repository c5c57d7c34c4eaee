"""A private S3: moto, with what a bucket of leases needs in addition.

usage: s3.py PORT FOLDER

- moto checks the condition of a write and then writes; here no other request comes between the two.
- moto keeps everything in memory; here each object is also a file in the folder, and survives the process.

The bucket is named `leases`. All credentials are accepted.
"""

import io
import os
import sys
import threading
from urllib.parse import quote, unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, run_simple
from werkzeug.test import Client

BUCKET = "/leases"


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open

    def log(self, *_):
        pass


class Kept:
    def __init__(self, app, folder):
        self.app, self.folder, self.lock = app, folder, threading.Lock()
        os.makedirs(folder, exist_ok=True)
        client = Client(app)
        client.put(BUCKET)
        for name in os.listdir(folder):
            if not name.endswith("~"):
                with open(os.path.join(folder, name), "rb") as file:
                    client.put(f"{BUCKET}/{quote(unquote(name))}", data=file.read())

    def file(self, path):
        return os.path.join(self.folder, quote(path.removeprefix(BUCKET + "/"), safe=""))

    def __call__(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        # Before the lock is taken, because a client may be slow.
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        statuses = []

        def note(status, *rest):
            statuses.append(status)
            return start_response(status, *rest)

        with self.lock:
            answer = list(self.app(environ, note))
            if statuses[-1].startswith("2") and path.startswith(BUCKET + "/"):
                if method == "PUT":
                    with open(self.file(path) + "~", "wb") as file:
                        file.write(body)
                    os.replace(self.file(path) + "~", self.file(path))
                elif method == "DELETE" and os.path.exists(self.file(path)):
                    os.remove(self.file(path))
        return answer


if __name__ == "__main__":
    app = Kept(DomainDispatcherApplication(create_backend_app), sys.argv[2])
    run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=True, request_handler=Handler)
