package doctor

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store/zookeeper"
)

// examineZooKeeper asks each server that the URL names about itself, with the four letters that every
// server answers.
func examineZooKeeper(servers *zookeeper.Servers) []finding {
	var findings []finding
	voters := 0
	for _, addr := range servers.Addrs {
		of := func(f finding) {
			f.Node = "member " + addr
			findings = append(findings, f)
		}
		answer, err := askServer(servers, addr)
		if err != nil {
			of(finding{Check: "version", Level: warn, Text: "no answer: " + err.Error(), Advice: "start the member, or leave it out of the URL"})
			continue
		}
		of(judgeZooKeeper(answer["Zookeeper version"]))
		mode := answer["Mode"]
		f := finding{Check: "mode", Level: fine, Text: mode}
		switch mode {
		case "":
			f.Level, f.Text, f.Advice = fail, "it serves nobody", "start members until a majority is up"
		case "standalone":
			f.Level, f.Advice = warn, "have 3 or 5 members, so that locks survive the loss of one"
		case "leader", "follower":
			voters++
		}
		of(f)
	}
	if voters > 0 {
		f := finding{Node: "all", Check: "members", Level: fine, Text: fmt.Sprintf("%d in the URL take part", voters)}
		if voters < 3 {
			f.Level, f.Advice = warn, "name all members in the URL, of which there should be 3 or 5"
		}
		findings = append(findings, f)
	}
	return findings
}

// askServer returns the lines of an answer to srvr.
func askServer(servers *zookeeper.Servers, addr string) (map[string]string, error) {
	conn, err := servers.Dial("tcp", addr, 3*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			lines[name] = value
		}
	}
	return lines, err
}

// judgeZooKeeper says whether a version has the nodes that a lock is made of: before 3.5 there are
// none that go by themselves.
func judgeZooKeeper(text string) finding {
	version, _, _ := strings.Cut(text, "-")
	f := finding{Check: "version", Level: fine, Text: "ZooKeeper " + version}
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = warn, "cannot tell", "let the server answer srvr, see its 4lw.commands.whitelist"
	case major < 3 || major == 3 && minor < 5:
		f.Level, f.Advice = fail, "use ZooKeeper 3.5 or later"
	}
	return f
}
