// A client of every kind by franz-go, whose groups are classic ones: a JSON line per command on standard input, one per answer on standard
// output (tests/clients/foreign_clients.py says which). Members of KIP-848 groups are in ../franzgo.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"`
}

type command struct {
	Op         string             `json:"op"`
	Topic      string             `json:"topic"`
	Group      string             `json:"group"`
	Codec      string             `json:"codec"`
	Partitions int32              `json:"partitions"`
	Name       string             `json:"name"`
	Value      string             `json:"value"`
	Configs    map[string]*string `json:"configs"`
	Records    []record           `json:"records"`
	TimeoutMs  int64              `json:"timeout_ms"`
}

type answer map[string]any

type program struct {
	broker string
	admin  *kadm.Client
	member *member
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	options := append(security(), kgo.SeedBrokers(os.Args[1]), kgo.ClientID("franz-go-example"), kgo.MetadataMinAge(100*time.Millisecond))
	admin, err := kadm.NewOptClient(options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p := &program{broker: os.Args[1], admin: admin}
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked command
		told := answer{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			told["error"] = err.Error()
		} else if err := p.run(context.Background(), asked, told); err != nil {
			told["error"] = err.Error()
		}
		if err := answers.Encode(told); err != nil {
			return
		}
	}
}

func (p *program) run(ctx context.Context, asked command, told answer) error {
	switch asked.Op {
	case "create":
		_, err := p.admin.CreateTopic(ctx, asked.Partitions, 1, asked.Configs, asked.Topic)
		return err
	case "delete":
		_, err := p.admin.DeleteTopic(ctx, asked.Topic)
		return err
	case "add-partitions":
		responses, err := p.admin.UpdatePartitions(ctx, int(asked.Partitions), asked.Topic)
		return first(err, responses.Error)
	case "topics":
		topics, err := p.admin.ListTopics(ctx)
		found := map[string]int{}
		for name, topic := range topics {
			found[name] = len(topic.Partitions)
		}
		told["topics"] = found
		return err
	case "alter-config":
		changes := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: asked.Name, Value: &asked.Value}}
		responses, err := p.admin.AlterTopicConfigs(ctx, changes, asked.Topic)
		return first(err, func() error { return responses[0].Err })
	case "config":
		resources, err := p.admin.DescribeTopicConfigs(ctx, asked.Topic)
		return first(err, func() error {
			for _, config := range resources[0].Configs {
				if config.Key == asked.Name {
					told["value"] = config.MaybeValue()
				}
			}
			return resources[0].Err
		})
	case "ends":
		offsets, err := p.admin.ListEndOffsets(ctx, asked.Topic)
		ends := []int64{}
		for _, offset := range offsets[asked.Topic] {
			ends = append(ends, offset.Offset)
		}
		told["ends"] = ends
		return first(err, offsets.Error)
	case "groups", "group", "offsets", "delete-group":
		return p.groups(ctx, asked, told)
	case "produce":
		return p.produce(ctx, asked, told)
	case "join":
		return p.join(asked)
	case "poll":
		return p.member.poll(ctx, time.Duration(asked.TimeoutMs)*time.Millisecond, told)
	case "commit":
		return p.member.client.CommitUncommittedOffsets(ctx)
	case "leave":
		p.member.client.Close()
		return nil
	}
	return fmt.Errorf("unknown command %q", asked.Op)
}

// first is err, or what look finds in an answer that came.
func first(err error, look func() error) error {
	if err != nil {
		return err
	}
	return look()
}

func (p *program) groups(ctx context.Context, asked command, told answer) error {
	switch asked.Op {
	case "groups":
		groups, err := p.admin.ListGroups(ctx)
		told["groups"] = groups.Groups()
		return err
	case "group":
		groups, err := p.admin.DescribeGroups(ctx, asked.Group)
		return first(err, func() error {
			told["state"], told["members"] = groups[asked.Group].State, len(groups[asked.Group].Members)
			return groups[asked.Group].Err
		})
	case "offsets":
		responses, err := p.admin.FetchOffsets(ctx, asked.Group)
		offsets := map[int32]int64{}
		for partition, response := range responses[asked.Topic] {
			offsets[partition] = response.At
		}
		told["offsets"] = offsets
		return first(err, responses.Error)
	}
	_, err := p.admin.DeleteGroup(ctx, asked.Group)
	return err
}

func (p *program) produce(ctx context.Context, asked command, told answer) error {
	client, err := kgo.NewClient(append(security(),
		kgo.SeedBrokers(p.broker), kgo.DefaultProduceTopic(asked.Topic), kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.RecordRetries(3),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, each := range asked.Records {
		records = append(records, &kgo.Record{Key: each.Key, Value: each.Value})
	}
	results := client.ProduceSync(ctx, records...)
	stored := []record{}
	for _, each := range records {
		stored = append(stored, record{each.Partition, each.Offset, each.Key, each.Value})
	}
	told["records"] = stored
	return results.FirstErr()
}

// member is the client and what the callbacks said that it owns.
type member struct {
	client *kgo.Client
	topic  string
	mutex  sync.Mutex
	owned  map[int32]bool
}

func (p *program) join(asked command) error {
	m := &member{topic: asked.Topic, owned: map[int32]bool{}}
	client, err := kgo.NewClient(append(security(),
		kgo.SeedBrokers(p.broker),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.note(partitions, false) }),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	)...)
	m.client, p.member = client, m
	return err
}

func (m *member) note(partitions map[string][]int32, areOwned bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partition := range partitions[m.topic] {
		m.owned[partition] = areOwned
	}
}

func (m *member) poll(ctx context.Context, timeout time.Duration, told answer) error {
	deadline, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	records := []record{}
	m.client.PollFetches(deadline).EachRecord(func(r *kgo.Record) {
		records = append(records, record{r.Partition, r.Offset, r.Key, r.Value})
	})
	m.mutex.Lock()
	defer m.mutex.Unlock()
	assignment := []int32{}
	for partition, isOwned := range m.owned {
		if isOwned {
			assignment = append(assignment, partition)
		}
	}
	told["records"], told["assignment"] = records, assignment
	return nil
}
