// A client of every kind by sarama: a JSON line per command on standard input, one per answer on standard output
// (tests/clients/foreign_clients.py says which).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
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
	Version    string             `json:"version"`
}

type answer map[string]any

type program struct {
	brokers []string
	admin   sarama.ClusterAdmin
	member  *member
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "sarama-example"
	config.Version = sarama.MaxVersion
	config.Metadata.AllowAutoTopicCreation = false
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Return.Errors = false
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	return secure(config)
}

func main() {
	admin, err := sarama.NewClusterAdmin(strings.Split(os.Args[1], ","), config())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	p := &program{brokers: strings.Split(os.Args[1], ","), admin: admin}
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked command
		told := answer{}
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			told["error"] = err.Error()
		} else if err := p.run(asked, told); err != nil {
			told["error"] = err.Error()
		}
		if err := answers.Encode(told); err != nil {
			return
		}
	}
}

func (p *program) run(asked command, told answer) error {
	switch asked.Op {
	case "create":
		detail := &sarama.TopicDetail{NumPartitions: asked.Partitions, ReplicationFactor: 1, ConfigEntries: asked.Configs}
		return p.admin.CreateTopic(asked.Topic, detail, false)
	case "delete":
		return p.admin.DeleteTopic(asked.Topic)
	case "add-partitions":
		return p.admin.CreatePartitions(asked.Topic, asked.Partitions, nil, false)
	case "topics":
		topics, err := p.admin.ListTopics()
		found := map[string]int32{}
		for name, detail := range topics {
			found[name] = detail.NumPartitions
		}
		told["topics"] = found
		return err
	case "alter-config":
		entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &asked.Value}
		entries := map[string]sarama.IncrementalAlterConfigsEntry{asked.Name: entry}
		return p.admin.IncrementalAlterConfig(sarama.TopicResource, asked.Topic, entries, false)
	case "config":
		resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: asked.Topic, ConfigNames: []string{asked.Name}}
		entries, err := p.admin.DescribeConfig(resource)
		for _, entry := range entries {
			told["value"] = entry.Value
		}
		return err
	case "ends":
		return p.ends(asked, told)
	case "groups":
		groups, err := p.admin.ListConsumerGroups()
		names := []string{}
		for name := range groups {
			names = append(names, name)
		}
		told["groups"] = names
		return err
	case "group":
		described, err := p.admin.DescribeConsumerGroups([]string{asked.Group})
		for _, group := range described {
			told["state"], told["members"] = group.State, len(group.Members)
		}
		return err
	case "offsets":
		return p.offsets(asked, told)
	case "scrape":
		return p.scrape(asked, told)
	case "delete-group":
		return p.admin.DeleteConsumerGroup(asked.Group)
	case "produce":
		return p.produce(asked, told)
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

func (p *program) ends(asked command, told answer) error {
	client, err := sarama.NewClient(p.brokers, config())
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, err := client.Partitions(asked.Topic)
	ends := make([]int64, len(partitions))
	for _, partition := range partitions {
		if err == nil {
			ends[partition], err = client.GetOffset(asked.Topic, partition, sarama.OffsetNewest)
		}
	}
	told["ends"] = ends
	return err
}

func (p *program) offsets(asked command, told answer) error {
	response, err := p.admin.ListConsumerGroupOffsets(asked.Group, nil) // all of the group, as kafka_exporter asks
	if err != nil {
		return err
	}
	offsets := map[int32]int64{}
	for partition, block := range response.Blocks[asked.Topic] {
		if !errors.Is(block.Err, sarama.ErrNoError) {
			return block.Err
		}
		offsets[partition] = block.Offset
	}
	told["offsets"] = offsets
	return nil
}

func (p *program) produce(asked command, told answer) error {
	settings := config()
	settings.Producer.Compression = codecs[asked.Codec]
	producer, err := sarama.NewSyncProducer(p.brokers, settings)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := []*sarama.ProducerMessage{}
	for _, each := range asked.Records {
		messages = append(messages, &sarama.ProducerMessage{
			Topic: asked.Topic, Key: sarama.ByteEncoder(each.Key), Value: sarama.ByteEncoder(each.Value),
		})
	}
	if err := producer.SendMessages(messages); err != nil {
		var several sarama.ProducerErrors
		if errors.As(err, &several) {
			return several[0].Err
		}
		return err
	}
	stored := []record{}
	for number, message := range messages {
		stored = append(stored, record{message.Partition, message.Offset, asked.Records[number].Key, asked.Records[number].Value})
	}
	told["records"] = stored
	return nil
}

// member is sarama's ConsumerGroupHandler: what it has read waits for the next poll.
type member struct {
	group   sarama.ConsumerGroup
	cancel  context.CancelFunc
	ended   chan struct{}
	mutex   sync.Mutex
	session sarama.ConsumerGroupSession
	topic   string
	records []record
}

func (p *program) join(asked command) error {
	group, err := sarama.NewConsumerGroup(p.brokers, asked.Group, config())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.member = &member{group: group, cancel: cancel, ended: make(chan struct{}), topic: asked.Topic}
	go func() {
		defer close(p.member.ended)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{asked.Topic}, p.member); err != nil {
				fmt.Fprintln(os.Stderr, err)
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return nil
}

func (m *member) Setup(session sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = session
	return nil
}

func (m *member) Cleanup(sarama.ConsumerGroupSession) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.session = nil
	return nil
}

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			m.mutex.Lock()
			m.records = append(m.records, record{message.Partition, message.Offset, message.Key, message.Value})
			m.mutex.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) poll(timeout time.Duration, told answer) {
	time.Sleep(timeout)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	told["records"] = m.records
	m.records = nil
	assignment := []int32{}
	if m.session != nil {
		assignment = append(assignment, m.session.Claims()[m.topic]...)
	}
	sort.Slice(assignment, func(i, j int) bool { return assignment[i] < assignment[j] })
	told["assignment"] = assignment
}

func (m *member) commit() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.session == nil {
		return errors.New("no session")
	}
	m.session.Commit()
	return nil
}

func (m *member) leave() error {
	m.cancel()
	<-m.ended
	return m.group.Close()
}
