// brain.js: item by item, as it has no batches; leaky ReLU at both layers and squared error, as it has no softmax.
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { parseArgs } from "node:util";
import brain from "brain.js";

const options = Object.fromEntries(["iterations", "rate", "momentum", "batch", "seed"].map((name) => [name, { type: "string" }]));
const { iterations, rate, momentum, batch, seed } = Object.fromEntries(
  Object.entries(parseArgs({ options }).values).map(([name, text]) => [name, Number(text)]));

let state = seed + 1; // mulberry32: Math.random, which draws brain.js's first weights, takes no seed
Math.random = () => {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
};
const read = (part, kind, offset) =>
  gunzipSync(readFileSync(new URL(`../../datasets/mnist/${part}-${kind}-ubyte.gz`, import.meta.url))).subarray(offset);
const load = (part) => {
  const images = read(part, "images-idx3", 16);
  return Array.from(read(part, "labels-idx1", 8), (label, item) => ({
    label,
    input: Float32Array.from(images.subarray(784 * item, 784 * (item + 1)), (value) => value / 255),
    output: Float32Array.from({ length: 10 }, (_, index) => Number(index === label)),
  }));
};
const [items, tests] = [load("train"), load("t10k")];
const network = new brain.NeuralNetwork({ hiddenLayers: [128], activation: "leaky-relu" });
network.updateTrainingOptions({ momentum, learningRate: rate });
network.sizes = [784, 128, 10];
network.initialize();

const total = iterations * batch, warm = Math.max(1, Math.floor(total / 10));
const began = performance.now();
for (let number = 0; number < total; number++) {
  const at = number % items.length;
  if (at === 0)
    for (let last = items.length - 1; last > 0; last--) {
      const other = Math.floor(Math.random() * (last + 1));
      [items[last], items[other]] = [items[other], items[last]];
    }
  network.trainOpts.learningRate = rate * Math.min((number + 1) / warm, (total - number) / (total - warm));
  network.trainPattern(items[at]);
}
const seconds = (performance.now() - began) / 1000;
const right = tests.filter(({ input, label }) => {
  const answer = network.runInput(input);
  return answer.indexOf(Math.max(...answer)) === label;
}).length;
console.log(JSON.stringify({ seconds, accuracy: right / tests.length, items: total }));
