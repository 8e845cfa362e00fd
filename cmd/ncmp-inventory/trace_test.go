package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"ncmp-inventory/store/storetest"
)

// otlp is a collector that keeps what it gets.
type otlp struct {
	url string

	mu       sync.Mutex
	spans    []*tracepb.Span
	services map[string]bool
}

func newOTLP(t *testing.T) *otlp {
	t.Helper()
	c := &otlp{services: map[string]bool{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		var err error
		if body, err = gzip.NewReader(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	var req collector.ExportTraceServiceRequest
	b, err := io.ReadAll(body)
	if err == nil {
		err = proto.Unmarshal(b, &req)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "no trace export", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range req.ResourceSpans {
		for _, a := range rs.Resource.Attributes {
			if a.Key == "service.name" {
				c.services[a.Value.GetStringValue()] = true
			}
		}
		for _, ss := range rs.ScopeSpans {
			c.spans = append(c.spans, ss.Spans...)
		}
	}
}

// named are the spans of a name.
func (c *otlp) named(name string) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*tracepb.Span
	for _, s := range c.spans {
		if s.Name == name {
			out = append(out, s)
		}
	}
	return out
}

// idOf is a span as a traceparent names it.
func idOf(trace, span []byte) string {
	return hex.EncodeToString(trace) + "-" + hex.EncodeToString(span)
}

func linksOf(s *tracepb.Span) []string {
	var ids []string
	for _, l := range s.Links {
		ids = append(ids, idOf(l.TraceId, l.SpanId))
	}
	return ids
}

// From the producer's span to the one that an LCM event's own traceparent names,
// and through the batch and the publishing of both; what is not sampled leaves
// no span.
func TestATraceRunsFromTheProducerToTheLCMEvent(t *testing.T) {
	t.Parallel()
	l := newLab(t, storetest.Open(t), 1)
	c := newOTLP(t)
	w := l.startWorker("worker", "--trace.otlp-endpoint", c.url, "--outcomes", "all")
	w.awaitLine(`"started"`)
	const (
		sampled = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
		another = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8"
		silent  = "4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7"
	)
	send := func(id, traceHeader, trace string) {
		r := shownRecord{topic: "ncmp-inventory-registrations", value: `{"createdCmHandles":[{"cmHandle":"` + id + `","trustLevel":"NONE"}]}`}
		r.headers = [][2]string{
			{"key", id}, {"ce_specversion", "1.0"}, {"ce_id", id}, {"ce_source", "/lab"},
			{"ce_type", "org.onap.ncmp.inventory.registration.v1"}, {"content-type", "application/json"},
		}
		if trace != "" {
			r.headers = append(r.headers, [2]string{traceHeader, "00-" + trace})
		}
		l.sendShown(r)
	}
	send("a", "ce_traceparent", sampled+"-01")
	send("b", "traceparent", another+"-01")
	send("c", "ce_traceparent", silent+"-00")
	send("d", "", "")
	topics := l.config.Kafka.Topics
	var told []kafka.Message
	for _, topic := range []string{topics.LCMEvents, topics.InventoryEvents, topics.Outcomes} {
		l.record(topic, 3)
		told = append(told, l.topic(topic)...)
	}
	l.awaitNothingWaits()
	w.terminate()

	require.Equal(t, map[string]bool{"ncmp-inventory": true}, c.services)
	applied := map[string]string{} // a producer's span to that of the batch
	for _, s := range c.named("apply " + topics.Registrations[0]) {
		require.Empty(t, s.ParentSpanId)
		for _, link := range linksOf(s) {
			applied[link] = idOf(s.TraceId, s.SpanId)
		}
	}
	require.Len(t, applied, 2)
	created, published := map[string]*tracepb.Span{}, map[string]bool{}
	for _, topic := range []string{topics.LCMEvents, topics.InventoryEvents, topics.Outcomes} {
		for _, s := range c.named("create " + topic) {
			created[idOf(s.TraceId, s.SpanId)] = s
		}
		for _, s := range c.named("publish " + topic) {
			for _, link := range linksOf(s) {
				published[link] = true
			}
		}
	}
	require.Len(t, created, 6)
	require.Len(t, published, 6)
	seen := 0
	for i := range told {
		own := headerOf(&told[i], "ce_traceparent")
		if string(told[i].Key) == "d" {
			require.Empty(t, own)
			continue
		}
		if string(told[i].Key) == "c" {
			require.True(t, strings.HasSuffix(own, "-00"), own)
			require.NotContains(t, created, own[3:52])
			continue
		}
		seen++
		s := created[own[3:52]]
		require.NotNil(t, s, "%s has no span", own)
		producer := map[string]string{"a": sampled, "b": another}[string(told[i].Key)]
		require.Equal(t, producer, idOf(s.TraceId, s.ParentSpanId))
		require.Equal(t, []string{applied[producer]}, linksOf(s))
		require.LessOrEqual(t, s.StartTimeUnixNano, s.EndTimeUnixNano)
		require.True(t, published[own[3:52]])
	}
	require.Equal(t, 6, seen)
	require.Len(t, c.spans, len(c.named("apply "+topics.Registrations[0]))+6+
		len(c.named("publish "+topics.LCMEvents))+len(c.named("publish "+topics.InventoryEvents))+len(c.named("publish "+topics.Outcomes)), "and no others")
}

// A collector that is away costs spans and one line, nothing else.
func TestACollectorThatIsAwayHoldsNothingUp(t *testing.T) {
	t.Parallel()
	l := newLab(t, storetest.Open(t), 1)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }))
	t.Cleanup(refuses.Close)
	w := l.startWorker("worker", "--trace.otlp-endpoint", refuses.URL)
	w.awaitLine(`"started"`)
	for _, id := range []string{"a", "b", "c"} {
		l.sendShown(shownRecord{topic: "ncmp-inventory-registrations", value: `{"createdCmHandles":[{"cmHandle":"` + id + `"}]}`, headers: [][2]string{
			{"key", id}, {"ce_specversion", "1.0"}, {"ce_id", id}, {"ce_source", "/lab"}, {"ce_type", "org.onap.ncmp.inventory.registration.v1"},
			{"ce_traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		}})
		l.record(l.config.Kafka.Topics.LCMEvents, int(id[0]-'a'))
	}
	w.terminate()
	require.Equal(t, 1, strings.Count(w.said.String(), "traces are not exported"), w.said.String())
}
