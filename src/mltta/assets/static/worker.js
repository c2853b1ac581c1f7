// Runs mltta's Python in Pyodide and its graphs in ONNX Runtime Web.
import * as ort from "../engine/ort.wasm.min.mjs";
import { loadPyodide } from "../engine/pyodide.mjs";

const ENGINE = new URL("../engine/", import.meta.url).href;
const TYPES = { float32: "f32", int64: "i64" };
ort.env.wasm.wasmPaths = ENGINE;
ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(8, navigator.hardwareConcurrency) : 1;

const fetched = async (name) => {
  const answer = await fetch(ENGINE + name);
  if (!answer.ok) throw new Error(`${name} is missing (${answer.status})`);
  return answer;
};

async function start() {
  postMessage({ status: "Loading the model…" });
  const names = await (await fetched("archives.json")).json();
  const [python, ...archives] = await Promise.all([
    loadPyodide({ indexURL: ENGINE }),
    ...names.map(async (name) => new Uint8Array(await (await fetched(name)).arrayBuffer())),
  ]);
  for (const archive of archives) python.unpackArchive(archive, "wheel");
  const page = python.runPython("from mltta.serve.in_page import Page\nPage()");
  const weights = python.FS.readFile(`${page.folder}/${page.weights}`), sessions = {};
  const session = (name) => sessions[name] ??= ort.InferenceSession.create(
    python.FS.readFile(`${page.folder}/${name}`), { externalData: [{ path: page.weights, data: weights }] });
  return { page, session };
}

async function compute({ page, session }) {
  const asked = page.take();
  for (const one of asked) {
    const [key, graph, output, inputs] = one, feeds = {};
    for (const name of inputs) {
      const array = inputs.get(name), type = String(array.dtype), view = array.getBuffer(TYPES[type]);
      feeds[name] = new ort.Tensor(type, view.data.slice(), [...view.shape]);
      view.release();
      array.destroy();
    }
    const found = (await (await session(graph)).run(feeds, [output]))[output];
    page.give(key, found.data, found.dims);
    inputs.destroy();
    one.destroy();
  }
  asked.destroy();
}

const engine = start();
let last = engine;
onmessage = ({ data: { id, path, fields, names, files } }) => {
  last = last.catch(() => {}).then(async () => {
    try {
      const own = await engine;
      for (;;) {
        const said = own.page.answer(path, JSON.stringify(fields), names, files);
        if (said) return postMessage({ id, answer: JSON.parse(said) });
        await compute(own);
      }
    } catch (error) {
      postMessage({ id, failed: String(error.message || error).trim().split("\n").at(-1) });
    }
  });
};
