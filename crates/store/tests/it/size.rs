//! Disk space per byte of text.

use std::fs;
use std::path::Path;

use crate::{Home, assistant, at, message_step, session};

const MESSAGE_BYTES: usize = 4 << 10;
const MESSAGE_COUNT: usize = 300;

/// The sources of this project as sample text: code, and prose in its comments.
fn sources(folder: &Path, found: &mut Vec<String>) {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Splits a text into messages.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut pieces = vec![String::new()];
    for char in chars {
        if pieces.last().unwrap().len() >= MESSAGE_BYTES {
            pieces.push(String::new());
        }
        pieces.last_mut().unwrap().push(char);
    }
    pieces.pop();
    pieces.truncate(MESSAGE_COUNT);
    pieces
}

/// Sentences of common Chinese words with a natural frequency distribution.
fn chinese() -> String {
    let words = "的 是 在 我们 可以 一个 这个 使用 需要 如果 没有 已经 然后 文件 数据 系统 程序 服务器 数据库 网络 配置 问题 \
        错误 运行 命令 测试 更新 版本 用户 密码 连接 请求 响应 时间 内存 磁盘 进程 线程 函数 变量 参数 返回 结果 检查 修改 删除 创建 \
        添加 读取 写入 保存 打开 关闭 开始 结束 安装 部署 备份 恢复 日志 监控 性能 优化 安全 权限 管理 开发 设计 架构 接口 模块 组件 \
        容器 镜像 环境 变化 方法 原因 解决 方案 说明 文档 示例 代码 编译 构建 发布 分支 合并 提交 仓库 项目 团队 客户 产品 需求 计划 \
        任务 今天 明天 昨天 现在 以后 之前 因为 所以 但是 不过 而且 或者 还有 只有 应该 必须 可能 一定 非常 比较 特别 其实 重要 简单 \
        复杂 容易 困难 正常 异常 成功 失败 完成 继续 停止 等待 处理 发送 接收 消息 队列 缓存 索引 查询 事务 锁 表 字段 类型 字符串 整数 \
        列表 字典 对象 类 继承 实现 调用 执行 脚本 终端 窗口 浏览器 页面 按钮 图片 视频 声音 电话 邮件 地址 城市 国家 公司 学校 医院 \
        北京 上海 天气 温度 早上 晚上 吃饭 喝水 工作 学习 休息 旅行 朋友 家人 孩子 老师 学生 医生 工程师 经理 老板 价格 费用 合同";
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut seed = 0x9e37_79b9_u64;
    let mut text = String::new();
    while text.len() < MESSAGE_COUNT * MESSAGE_BYTES + MESSAGE_BYTES {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        // The smaller of two draws makes the first words most frequent.
        let pick = |shift: u32| usize::try_from((seed >> shift) % words.len() as u64).unwrap();
        text.push_str(words[pick(5).min(pick(29)).min(pick(43))]);
        match seed % 11 {
            0 => text.push('。'),
            1 => text.push(','),
            2 if seed.is_multiple_of(3) => text.push('\n'),
            _ => {}
        }
    }
    text
}

#[tokio::test]
async fn a_text_uses_at_most_two_and_a_half_times_its_size() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    sources(root, &mut files);
    let code = files.concat();
    let comments: Vec<&str> = code
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("//"))
        .map(|line| line.trim_start_matches(['/', '!']).trim())
        .collect();
    for (kind, text) in [("prose", comments.join(" ")), ("code", code), ("CJK", chinese())] {
        let pieces = pieces(&text);
        assert!(pieces.len() > 50, "{kind}: {}", pieces.len());
        let home = Home::new();
        let store = home.store().await;
        let id = session(&store).await;
        let empty = store.size();
        let mut bytes = 0;
        for (number, piece) in pieces.iter().enumerate() {
            bytes += piece.len();
            store.append_step(&id, message_step(assistant(piece), at(number as u64))).await.unwrap();
        }
        store.close().await;
        let size = fs::metadata(home.file()).unwrap().len();
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let factor = (size.saturating_sub(empty)) as f64 / bytes as f64;
        println!(
            "{kind}: {} messages, {bytes} bytes of text, {size} on disk, factor {factor:.2}",
            pieces.len()
        );
        assert!(factor <= 2.5, "{kind}: {factor:.2}");
    }
}
