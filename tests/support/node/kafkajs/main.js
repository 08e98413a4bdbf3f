// A client of every kind by kafkajs: a JSON line per command on standard input, one per answer on standard output
// (tests/clients/foreign_clients.py says which). Codecs but gzip are plug-ins of kafkajs; here they need no compiler.
"use strict";

const readline = require("node:readline");
const zstd = require("@bokuweb/zstd-wasm");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4js");

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const TOPIC = ConfigResourceTypes.TOPIC;

CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

// The second word, if there is one, says how to log in, by TLS.
function security(word) {
  if (!word) return {};
  const { ca, mechanism, user, password } = JSON.parse(word);
  return { ssl: { ca: [ca] }, sasl: { mechanism: mechanism.toLowerCase(), username: user, password } };
}

const kafka = new Kafka({ clientId: "kafkajs-example", brokers: [process.argv[2]], logLevel: logLevel.NOTHING, ...security(process.argv[3]) });
const admin = kafka.admin({ retry: { retries: 3 } });
let member;

class Member {
  constructor(topic, group) {
    this.topic = topic;
    this.records = [];
    this.assignment = [];
    this.next = new Map(); // behind what the last poll has given
    this.consumer = kafka.consumer({ groupId: group, heartbeatInterval: 200, maxWaitTimeInMs: 100, rebalanceTimeout: 10000 });
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.assignment = payload.memberAssignment[topic] || [];
      this.next.clear();
    });
    this.consumer.on(this.consumer.events.REBALANCING, () => {
      this.assignment = [];
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topic: this.topic, fromBeginning: true });
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        this.records.push({ partition, offset: Number(message.offset), key: base64(message.key), value: base64(message.value) });
      },
    });
  }

  async poll(timeoutMs) {
    await new Promise((resolve) => setTimeout(resolve, timeoutMs));
    const records = this.records;
    this.records = [];
    for (const { partition, offset } of records) {
      this.next.set(partition, offset + 1);
    }
    return { records, assignment: this.assignment };
  }

  async commit() {
    const offsets = [...this.next].map(([partition, offset]) => ({ topic: this.topic, partition, offset: String(offset) }));
    if (offsets.length) {
      await this.consumer.commitOffsets(offsets);
    }
  }
}

const base64 = (data) => (data === null ? null : data.toString("base64"));
const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));

async function produce({ topic, codec, records }) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { retries: 3 } });
  await producer.connect();
  try {
    const messages = records.map(({ key, value }) => ({ key: bytes(key), value: bytes(value) }));
    await producer.send({ topic, messages, compression: CODECS[codec] });
  } finally {
    await producer.disconnect();
  }
  return { records: records.map((record) => ({ ...record, partition: -1, offset: -1 })) }; // it tells only where batches went
}

const COMMANDS = {
  create: async ({ topic, partitions, configs }) => {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
    const isNew = await admin.createTopics({ topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }] });
    if (!isNew) {
      throw new Error("kafkajs says that the topic was there");
    }
  },
  delete: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  "add-partitions": ({ topic, partitions }) => admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] }),
  topics: async () => {
    const { topics } = await admin.fetchTopicMetadata();
    return { topics: Object.fromEntries(topics.map(({ name, partitions }) => [name, partitions.length])) };
  },
  "alter-config": ({ topic, name, value }) =>
    admin.alterConfigs({ resources: [{ type: TOPIC, name: topic, configEntries: [{ name, value }] }] }),
  config: async ({ topic, name }) => {
    const { resources } = await admin.describeConfigs({ resources: [{ type: TOPIC, name: topic, configNames: [name] }] });
    return { value: resources[0].configEntries[0].configValue };
  },
  ends: async ({ topic }) => ({ ends: (await admin.fetchTopicOffsets(topic)).map(({ offset }) => Number(offset)) }),
  groups: async () => ({ groups: (await admin.listGroups()).groups.map(({ groupId }) => groupId) }),
  group: async ({ group }) => {
    const { groups } = await admin.describeGroups([group]);
    return { state: groups[0].state, members: groups[0].members.length };
  },
  offsets: async ({ group, topic }) => {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    return { offsets: Object.fromEntries(found.partitions.map(({ partition, offset }) => [partition, Number(offset)])) };
  },
  "delete-group": ({ group }) => admin.deleteGroups([group]),
  produce,
  join: async ({ topic, group }) => {
    member = new Member(topic, group);
    await member.start();
  },
  poll: ({ timeout_ms }) => member.poll(timeout_ms),
  commit: () => member.commit(),
  leave: () => member.consumer.disconnect(),
};

async function answer(line) {
  const command = JSON.parse(line);
  try {
    const found = await COMMANDS[command.op](command);
    return found && !Array.isArray(found) && typeof found === "object" ? found : {};
  } catch (error) {
    return { error: [error.message, ...(error.groups || []).map((each) => each.error && each.error.message)].join("; ") };
  }
}

async function main() {
  await zstd.init();
  await admin.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
  }
  await admin.disconnect();
}

main();
