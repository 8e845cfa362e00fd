package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/describegroups"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"ncmp-inventory/cmd/ncmp-inventory/config"
	"ncmp-inventory/lcm"
)

// verdict is how a check ended.
type verdict int

// The verdicts, from good to bad.
const (
	good    verdict = iota
	warning         // works, but look at it
	absent          // not there yet: waiting may mend it
	wrong           // a human has to change something
)

func (v verdict) String() string { return [...]string{"ok", "warning", "missing", "wrong"}[v] }

// finding is the result of one check, in words for the person who has to act.
type finding struct {
	verdict
	what string // what was looked at
	text string // what was found
	key  string // the configuration key to look at
	try  string // what to do about it
}

// findings are the results of several checks, and what they learned on the way.
type findings struct {
	list []finding
	// limits are what some output topics take.
	limits topicLimits
	// missing are the topics that do not exist.
	missing []string
}

func (f *findings) add(v verdict, what, text, key, try string) {
	f.list = append(f.list, finding{v, what, oneLine(text), key, try})
}

// oneLine makes a row of a table of an error that has several lines, such as
// one for each address that was tried. Equal ones are told once.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

func (f *findings) worst() verdict {
	w := good
	for _, one := range f.list {
		w = max(w, one.verdict)
	}
	return w
}

// Codes of Kafka's AclOperation, as bits of the authorized operations.
const (
	mayRead  = int32(1) << 3
	mayWrite = int32(1) << 4
)

// topicUse is a topic and what the worker does with it.
type topicUse struct {
	name, key string
	input     bool
	rights    []right
}

// right is what the worker has to be allowed to do with a topic.
type right struct {
	name string
	bit  int32
}

var (
	toRead  = right{"READ", mayRead}
	toWrite = right{"WRITE", mayWrite}
)

// without names the rights that are not among those given.
func (u topicUse) without(given int32) string {
	var names []string
	for _, r := range u.rights {
		if given&r.bit == 0 {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, " and ")
}

func topicUses(t config.Topics) []topicUse {
	var uses []topicUse
	for _, in := range []struct {
		key    string
		topics []string
	}{
		{"kafka.topics.registrations", t.Registrations}, {"kafka.topics.state-changes", t.StateChanges}, {"kafka.topics.heartbeats", t.Heartbeats},
	} {
		for _, name := range in.topics {
			if !slices.ContainsFunc(uses, func(u topicUse) bool { return u.name == name }) {
				uses = append(uses, topicUse{name, in.key, true, []right{toRead}})
			}
		}
	}
	return append(uses,
		// The publisher reads the last LCM events: their sequences must go on.
		topicUse{t.LCMEvents, "kafka.topics.lcm-events", false, []right{toWrite, toRead}},
		topicUse{t.InventoryEvents, "kafka.topics.inventory-events", false, []right{toWrite}},
		topicUse{t.Outcomes, "kafka.topics.outcomes", false, []right{toWrite}},
		topicUse{t.DeadLetters, "kafka.topics.dead-letters", false, []right{toWrite}})
}

// checkKafka looks whether the brokers let the worker do all that it has to.
func checkKafka(ctx context.Context, k config.Kafka, client *kafka.Client) *findings {
	f := &findings{limits: topicLimits{lcm: lcm.DefaultMaxMessageBytes, outcomes: lcm.DefaultMaxMessageBytes}}
	uses := topicUses(k.Topics)
	names := make([]string, len(uses))
	for i, u := range uses {
		names[i] = u.name
	}
	md, err := clusterMetadata(ctx, client, names)
	if err != nil {
		f.brokersFailed(k, err)
		return f
	}
	f.add(good, "brokers", fmt.Sprintf("cluster %s, %d broker(s)", md.ClusterID, len(md.Brokers)), "kafka.brokers", "")
	for _, u := range uses {
		i := slices.IndexFunc(md.Topics, func(t metadata.ResponseTopic) bool { return t.Name == u.name })
		if i < 0 {
			f.add(absent, "topic "+u.name, "the brokers do not tell about it", u.key, "")
			continue
		}
		f.topic(u, &md.Topics[i])
	}
	f.group(ctx, k, client)
	f.topicConfigs(ctx, k, client, uses, len(md.Brokers))
	return f
}

func (f *findings) brokersFailed(k config.Kafka, err error) {
	reason := strings.TrimPrefix(err.Error(), "read cluster metadata: ")
	var credentials *credentialsError
	switch {
	case errors.As(err, &credentials):
		f.add(wrong, "brokers", reason, "kafka.sasl.oauth.client-secret", "check client id, client secret and scope")
	case errors.Is(err, kafka.SASLAuthenticationFailed):
		f.add(wrong, "brokers", reason, "kafka.sasl.password", "check user and password")
	case errors.Is(err, kafka.UnsupportedSASLMechanism):
		f.add(wrong, "brokers", reason, "kafka.sasl.mechanism", "choose a mechanism that the brokers have enabled")
	case refused(err):
		f.add(wrong, "brokers", reason, "kafka.tls.enabled", "check the kafka.tls keys against the brokers' listener")
	default:
		f.add(absent, "brokers", strings.Join(k.Brokers, ", ")+": "+reason, "kafka.brokers", unreachable(err))
	}
}

func (f *findings) topic(u topicUse, t *metadata.ResponseTopic) {
	what := "topic " + u.name
	missing := ""
	if t.TopicAuthorizedOperations != noRights {
		missing = u.without(t.TopicAuthorizedOperations)
	}
	switch code := kafka.Error(t.ErrorCode); {
	case code == kafka.UnknownTopicOrPartition:
		f.missing = append(f.missing, u.name)
		f.add(absent, what, "does not exist", u.key, "create it, or start the worker once with --create-topics")
	case code == kafka.TopicAuthorizationFailed:
		f.add(wrong, what, "may not be described", u.key, "grant "+u.without(0)+" on the topic")
	case code != 0 && code != kafka.LeaderNotAvailable:
		f.add(absent, what, code.Title(), u.key, "look at the brokers")
	case missing != "":
		f.add(wrong, what, "no right to "+missing, u.key, "grant "+missing+" on the topic")
	default:
		f.add(good, what, fmt.Sprintf("%d partition(s)", len(t.Partitions)), u.key, "")
	}
}

func (f *findings) group(ctx context.Context, k config.Kafka, client *kafka.Client) {
	what := "group " + k.Group
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := client.Transport.RoundTrip(ctx, client.Addr, &describegroups.Request{Groups: []string{k.Group}, IncludeAuthorizedOperations: true})
	if err != nil {
		v := absent
		if refused(err) {
			v = wrong
		}
		f.add(v, what, err.Error(), "kafka.group", "grant READ on the group if the brokers ask for rights")
		return
	}
	for _, g := range res.(*describegroups.Response).Groups {
		switch code := kafka.Error(g.ErrorCode); {
		case code == kafka.GroupAuthorizationFailed,
			code == 0 && g.AuthorizedOperations != noRights && g.AuthorizedOperations != 0 && g.AuthorizedOperations&mayRead == 0:
			f.add(wrong, what, "no right to READ", "kafka.group", "grant READ on the group")
		case code != 0 && code != kafka.GroupIdNotFound:
			f.add(absent, what, code.Title(), "kafka.group", "look at the brokers")
		default:
			state := strings.ToLower(g.GroupState)
			if state == "dead" {
				state = "not used yet"
			}
			f.add(good, what, fmt.Sprintf("%s, %d member(s)", state, len(g.Members)), "kafka.group", "")
		}
	}
}

// topicConfigs looks at the topics' own settings. They are hints: a worker that
// may not read them goes on with Kafka's defaults.
func (f *findings) topicConfigs(ctx context.Context, k config.Kafka, client *kafka.Client, uses []topicUse, brokers int) {
	byTopic, err := describeTopics(ctx, client, slices.DeleteFunc(slices.Clone(uses), func(u topicUse) bool { return slices.Contains(f.missing, u.name) }))
	if err != nil {
		f.add(warning, "topic settings", err.Error(), "", "grant DESCRIBE_CONFIGS on the topics, else Kafka's defaults are assumed")
		return
	}
	largest := 0
	for _, u := range uses {
		c, ok := byTopic[u.name]
		if !ok {
			continue
		}
		size, _ := strconv.Atoi(c["max.message.bytes"])
		switch {
		case u.input:
			largest = max(largest, size)
			if strings.Contains(c["cleanup.policy"], "compact") {
				f.add(warning, "topic "+u.name, "cleanup.policy is "+c["cleanup.policy"]+": events can vanish before they are read", u.key, "set cleanup.policy to delete")
			}
		case u.name == k.Topics.LCMEvents && size > 0:
			f.limits.lcm = size
		case u.name == k.Topics.Outcomes && size > 0:
			f.limits.outcomes = size
		case u.name == k.Topics.DeadLetters && size > 0 && size < largest+deadLetterExtra:
			f.add(warning, "topic "+u.name, fmt.Sprintf("takes %d bytes, input topics up to %d: a dead letter that does not compress would be parked in the database", size, largest),
				u.key, fmt.Sprintf("set its max.message.bytes to %d", largest+deadLetterExtra))
		}
		if n, err := strconv.Atoi(c["min.insync.replicas"]); err == nil && !u.input && brokers > 1 && n < 2 {
			f.add(warning, "topic "+u.name, "min.insync.replicas is 1: the loss of one broker can lose events that it acknowledged", u.key, "set min.insync.replicas to 2")
		}
	}
}

// topicLimits are the max.message.bytes of topics whose messages are made to fit.
type topicLimits struct{ lcm, outcomes int }

// deadLetterExtra is what a dead letter can be larger than the record was, at
// worst: a value that does not compress, with reason headers (texts and names
// are cut far below it), and the frames of zstd, three bytes for each 128 KiB.
// One that would fit as it is, or compressed, is published.
const deadLetterExtra = 64 << 10

// describeTopics reads settings by topic and name. A topic that may not be read
// is an error.
func describeTopics(ctx context.Context, client *kafka.Client, uses []topicUse) (map[string]map[string]string, error) {
	req := &kafka.DescribeConfigsRequest{}
	for _, u := range uses {
		req.Resources = append(req.Resources, kafka.DescribeConfigRequestResource{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: u.name,
			ConfigNames: []string{"max.message.bytes", "cleanup.policy", "min.insync.replicas"},
		})
	}
	if len(req.Resources) == 0 {
		return nil, nil
	}
	res, err := client.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("read topic settings: %w", err)
	}
	byTopic := map[string]map[string]string{}
	for _, r := range res.Resources {
		if r.Error != nil {
			return nil, fmt.Errorf("read settings of topic %s: %w", r.ResourceName, r.Error)
		}
		byTopic[r.ResourceName] = map[string]string{}
		for _, c := range r.ConfigEntries {
			byTopic[r.ResourceName][c.ConfigName] = c.ConfigValue
		}
	}
	return byTopic, nil
}

// Partitions of the topics that --create-topics makes. Twelve divide among 2,
// 3, 4, 6 and 12 workers; what is read by people or rarely written needs fewer.
const (
	busyPartitions  = 12
	quietPartitions = 3
)

// createTopics makes the missing topics, with the brokers' own replication and
// settings but for the dead letters, which must take what any input topic does.
func createTopics(ctx context.Context, k config.Kafka, client *kafka.Client, missing []string) error {
	req := &kafka.CreateTopicsRequest{}
	for _, name := range missing {
		t := kafka.TopicConfig{Topic: name, NumPartitions: busyPartitions, ReplicationFactor: -1}
		switch {
		case name == k.Topics.DeadLetters:
			t.ConfigEntries = []kafka.ConfigEntry{{ConfigName: "max.message.bytes", ConfigValue: strconv.Itoa(lcm.DefaultMaxMessageBytes + deadLetterExtra)}}
			t.NumPartitions = quietPartitions
		case name == k.Topics.InventoryEvents, name == k.Topics.Outcomes, slices.Contains(k.Topics.Heartbeats, name):
			t.NumPartitions = quietPartitions
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return nil
	}
	res, err := client.CreateTopics(ctx, req)
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for name, err := range res.Errors {
		if err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
	}
	return nil
}
