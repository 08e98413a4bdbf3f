// A client of every kind by kafka-go: a JSON line per command on standard input, one per answer on standard output
// (tests/clients/foreign_clients.py says which).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

type record struct {
	Partition int    `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       []byte `json:"key"`
	Value     []byte `json:"value"`
}

type command struct {
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Codec      string            `json:"codec"`
	Partitions int               `json:"partitions"`
	Name       string            `json:"name"`
	Value      string            `json:"value"`
	Configs    map[string]string `json:"configs"`
	Records    []record          `json:"records"`
	TimeoutMs  int64             `json:"timeout_ms"`
}

type answer map[string]any

type program struct {
	broker string
	client *kafka.Client
	member *member
}

var codecs = map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}

const patience = 30 * time.Second

func main() {
	p := &program{broker: os.Args[1], client: &kafka.Client{Addr: kafka.TCP(os.Args[1]), Timeout: patience, Transport: transport()}}
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
		return p.create(ctx, asked)
	case "delete":
		response, err := p.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{asked.Topic}})
		return first(err, func() error { return response.Errors[asked.Topic] })
	case "add-partitions":
		topics := []kafka.TopicPartitionsConfig{{Name: asked.Topic, Count: int32(asked.Partitions)}}
		response, err := p.client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: topics})
		return first(err, func() error { return response.Errors[asked.Topic] })
	case "topics":
		response, err := p.client.Metadata(ctx, &kafka.MetadataRequest{})
		return first(err, func() error {
			found := map[string]int{}
			for _, topic := range response.Topics {
				found[topic.Name] = len(topic.Partitions)
			}
			told["topics"] = found
			return nil
		})
	case "alter-config", "config":
		return p.configs(ctx, asked, told)
	case "ends":
		return p.ends(ctx, asked, told)
	case "groups", "group", "offsets", "delete-group":
		return p.groups(ctx, asked, told)
	case "produce":
		return p.produce(ctx, asked, told)
	case "join":
		return p.join(asked)
	case "poll":
		p.member.poll(time.Duration(asked.TimeoutMs)*time.Millisecond, told)
		return nil
	case "commit":
		return p.member.commit()
	case "leave":
		return p.member.leave()
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

func (p *program) create(ctx context.Context, asked command) error {
	topic := kafka.TopicConfig{Topic: asked.Topic, NumPartitions: asked.Partitions, ReplicationFactor: 1}
	for name, value := range asked.Configs {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	response, err := p.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	return first(err, func() error { return response.Errors[asked.Topic] })
}

func (p *program) configs(ctx context.Context, asked command, told answer) error {
	if asked.Op == "alter-config" {
		config := kafka.IncrementalAlterConfigsRequestConfig{Name: asked.Name, Value: asked.Value, ConfigOperation: kafka.ConfigOperationSet}
		resource := kafka.IncrementalAlterConfigsRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: asked.Topic, Configs: []kafka.IncrementalAlterConfigsRequestConfig{config},
		}
		resources := []kafka.IncrementalAlterConfigsRequestResource{resource}
		response, err := p.client.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: resources})
		return first(err, func() error { return response.Resources[0].Error })
	}
	resource := kafka.DescribeConfigRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: asked.Topic, ConfigNames: []string{asked.Name},
	}
	resources := []kafka.DescribeConfigRequestResource{resource}
	response, err := p.client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: resources})
	return first(err, func() error {
		for _, entry := range response.Resources[0].ConfigEntries {
			told["value"] = entry.ConfigValue
		}
		return response.Resources[0].Error
	})
}

func (p *program) ends(ctx context.Context, asked command, told answer) error {
	metadata, err := p.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{asked.Topic}})
	if err != nil {
		return err
	}
	requests := []kafka.OffsetRequest{}
	for _, partition := range metadata.Topics[0].Partitions {
		requests = append(requests, kafka.LastOffsetOf(partition.ID))
	}
	response, err := p.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{asked.Topic: requests}})
	if err != nil {
		return err
	}
	ends := make([]int64, len(requests))
	for _, partition := range response.Topics[asked.Topic] {
		ends[partition.Partition] = partition.LastOffset
	}
	told["ends"] = ends
	return nil
}

func (p *program) groups(ctx context.Context, asked command, told answer) error {
	switch asked.Op {
	case "groups":
		response, err := p.client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		return first(err, func() error {
			names := []string{}
			for _, group := range response.Groups {
				names = append(names, group.GroupID)
			}
			told["groups"] = names
			return response.Error
		})
	case "group":
		response, err := p.client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{asked.Group}})
		return first(err, func() error {
			told["state"], told["members"] = response.Groups[0].GroupState, len(response.Groups[0].Members)
			return response.Groups[0].Error
		})
	case "offsets":
		offsets, err := p.client.ConsumerOffsets(ctx, kafka.TopicAndGroup{Topic: asked.Topic, GroupId: asked.Group})
		told["offsets"] = offsets
		return err
	}
	response, err := p.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{asked.Group}})
	return first(err, func() error { return response.Errors[asked.Group] })
}

func (p *program) produce(ctx context.Context, asked command, told answer) error {
	stored := []record{}
	var mutex sync.Mutex
	writer := &kafka.Writer{
		Addr: kafka.TCP(p.broker), Topic: asked.Topic, Balancer: &kafka.Murmur2Balancer{}, Compression: codecs[asked.Codec],
		RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond, MaxAttempts: 3, Transport: transport(),
		Completion: func(messages []kafka.Message, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			for _, message := range messages {
				stored = append(stored, record{message.Partition, message.Offset, message.Key, message.Value})
			}
		},
	}
	messages := []kafka.Message{}
	for _, each := range asked.Records {
		messages = append(messages, kafka.Message{Key: each.Key, Value: each.Value})
	}
	err := writer.WriteMessages(ctx, messages...)
	if closing := writer.Close(); err == nil {
		err = closing
	}
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, each := range several {
			if each != nil {
				return each
			}
		}
	}
	told["records"] = stored
	return err
}

// member reads each partition of each generation of its group; what was read waits for the next poll.
type member struct {
	broker     string
	topic      string
	group      *kafka.ConsumerGroup
	cancel     context.CancelFunc
	ended      chan struct{}
	mutex      sync.Mutex
	generation *kafka.Generation
	records    []record
	next       map[int]int64 // behind what the last poll has given
}

func (p *program) join(asked command) error {
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: asked.Group, Brokers: []string{p.broker}, Topics: []string{asked.Topic}, StartOffset: kafka.FirstOffset, Dialer: dialer(),
		HeartbeatInterval: 200 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond, ErrorLogger: log.Default(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.member = &member{broker: p.broker, topic: asked.Topic, group: group, cancel: cancel, ended: make(chan struct{}), next: map[int]int64{}}
	go p.member.live(ctx)
	return nil
}

func (m *member) live(ctx context.Context) {
	defer close(m.ended)
	for {
		generation, err := m.group.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, kafka.ErrGroupClosed) {
				return
			}
			log.Print(err)
			continue
		}
		m.mutex.Lock()
		m.generation, m.next = generation, map[int]int64{}
		m.mutex.Unlock()
		for _, assignment := range generation.Assignments[m.topic] {
			generation.Start(func(ctx context.Context) { m.read(ctx, assignment) })
		}
	}
}

func (m *member) read(ctx context.Context, assignment kafka.PartitionAssignment) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{m.broker}, Topic: m.topic, Partition: assignment.ID, MaxWait: 100 * time.Millisecond, ErrorLogger: log.Default(),
		Dialer: dialer(),
	})
	defer reader.Close()
	if err := reader.SetOffset(assignment.Offset); err != nil {
		log.Print(err)
		return
	}
	for {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return
		}
		m.mutex.Lock()
		m.records = append(m.records, record{message.Partition, message.Offset, message.Key, message.Value})
		m.mutex.Unlock()
	}
}

func (m *member) poll(timeout time.Duration, told answer) {
	time.Sleep(timeout)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	told["records"] = m.records
	for _, each := range m.records {
		m.next[each.Partition] = each.Offset + 1
	}
	m.records = nil
	assignment := []int{}
	if m.generation != nil {
		for _, each := range m.generation.Assignments[m.topic] {
			assignment = append(assignment, each.ID)
		}
	}
	told["assignment"] = assignment
}

func (m *member) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.generation.CommitOffsets(map[string]map[int]int64{m.topic: m.next})
}

func (m *member) leave() error {
	m.cancel()
	<-m.ended
	return m.group.Close()
}
