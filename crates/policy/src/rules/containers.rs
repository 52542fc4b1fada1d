//! Containers and clusters: stopping them, deleting them, and giving them the host.

use super::{Rule, Trigger};
use crate::programs::When::{Any, Arg, Help};

pub(super) const RULES: &[Rule] = &[
    Rule::ask("containers", "stops or deletes containers, images or volumes", Trigger::Programs)
        .unless(Help)
        .examples(
            &[
                "docker stop web", "docker rm -f web", "docker compose down", "docker-compose down -v",
                "docker system prune -af", "podman kill x", "docker volume rm x",
            ],
            &["docker ps", "docker build .", "docker run --rm x", "docker compose up -d", "docker logs x"],
        ),
    Rule::ask("container-escape", "gives a container control of this machine", Trigger::Programs).examples(
        &[
            "docker run -v /:/h x",
            "docker run --privileged x",
            "docker run --pid=host x",
            "docker run -v /var/run/docker.sock:/var/run/docker.sock x",
            "docker run --cap-add SYS_ADMIN x",
            "docker run -v ~/.ssh:/s x",
        ],
        &[
            "docker run -v $PWD:/app x", "docker run -v ./data:/data x", "docker run -p 80:80 x",
            "docker run -v cache:/c x",
        ],
    ),
    Rule::ask("cluster", "changes or deletes things in a cluster", Trigger::Programs)
        .unless(Any(&[Help, Arg(&["--dry-run*"])]))
        .examples(
            &[
                "kubectl delete pod --all",
                "helm uninstall web",
                "kubectl drain n1",
                "kubectl scale deploy/x --replicas=0",
                "kubectl apply -f https://x.example/y.yaml",
            ],
            &[
                "kubectl get pods", "kubectl describe pod x", "helm list", "kubectl logs x",
                "kubectl rollout status deploy/x",
            ],
        ),
];
