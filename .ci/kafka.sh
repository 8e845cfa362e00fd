#!/usr/bin/env bash
# One Apache Kafka broker (KRaft) for the tests, from jars that Maven fetches.
#
#   .ci/kafka.sh up       start it and print its address
#   .ci/kafka.sh down     stop it and remove its data
#   .ci/kafka.sh address  print the address of the running one
#   .ci/kafka.sh run CMD… start it, run CMD with NCMP_TEST_KAFKA_BROKERS set, stop it
#   .ci/kafka.sh libs     fetch the jars and print their directory
#
# Its state lives in $KAFKA_DIR (default: .cache/kafka of this project; the jars
# stay there, the data does not). Ports are chosen free. Needs Java 17 and Maven.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' .ci/kafka/pom.xml)
dir=${KAFKA_DIR:-$PWD/.cache/kafka}
libs=$dir/libs-$version
run=$dir/run

say() { printf '%s\n' "$*" >&2; }

alive() { [[ -s $run/pid ]] && kill -0 "$(cat "$run/pid")" 2>/dev/null; }

fetch() {
  [[ -e $libs/.complete ]] && return
  say "fetching Apache Kafka $version"
  mkdir -p "$libs"
  mvn --batch-mode --quiet --file .ci/kafka/pom.xml dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$libs" </dev/null >&2
  touch "$libs/.complete"
}

# free_port prints a port that nothing listens on now. The broker itself tells
# if somebody was faster; up then tries another pair.
free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 12000)) # below the ports that outgoing connections take
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
}

configure() {
  local port=$1 controller=$2
  cat >"$run/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$run/data
auto.create.topics.enable=false
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.segment.delete.delay.ms=1000
PROPERTIES
}

java_() {
  java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$libs/*" "$@" </dev/null
}

start() {
  local port id
  rm -rf "$run"
  mkdir -p "$run"
  port=$(free_port)
  configure "$port" "$(free_port)"
  id=$(java_ kafka.tools.StorageTool random-uuid 2>/dev/null)
  java_ kafka.tools.StorageTool format -t "$id" -c "$run/server.properties" >"$run/format.log" 2>&1 ||
    { cat "$run/format.log" >&2; return 1; }
  # exec, so that the pid is Java's own; setsid, so that it outlives the shell.
  setsid java -Xmx512m -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$libs/*" \
    kafka.Kafka "$run/server.properties" </dev/null >"$run/server.log" 2>&1 &
  echo $! >"$run/pid"
  for ((i = 0; i < 600; i++)); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "127.0.0.1:$port" >"$run/address"
      return 0
    fi
    alive || return 1
    sleep 0.1
  done
  return 1
}

up() {
  if alive; then
    cat "$run/address"
    return
  fi
  fetch
  for _ in 1 2 3; do
    if start; then
      cat "$run/address"
      return
    fi
    say "Apache Kafka did not start:"
    tail -n 20 "$run/server.log" >&2 2>/dev/null || true
    down
  done
  return 1
}

down() {
  if alive; then
    local pid
    pid=$(cat "$run/pid")
    kill "$pid"
    for ((i = 0; i < 300; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -rf "$run"
}

case ${1:-} in
up) up ;;
down) down ;;
address) alive && cat "$run/address" ;;
libs) fetch && echo "$libs" ;;
run)
  shift
  trap down EXIT
  NCMP_TEST_KAFKA_BROKERS=$(up)
  export NCMP_TEST_KAFKA_BROKERS
  "$@"
  ;;
*)
  sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,11p' >&2
  exit 2
  ;;
esac
